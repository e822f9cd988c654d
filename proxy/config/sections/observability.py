"""The configuration's keys for what people see: the dashboard, recordings, the log, and traces.

Law: no text of a message is kept or sent anywhere unless a key here says so.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trimtab.proxy.config.policies.sections import Section
from trimtab.proxy.config.values import Url
from trimtab.proxy.config.words import Wanted

HeaderName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$"),
    AfterValidator(str.lower),
    Wanted("the name of a header"),
]
FieldPath = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,60}(\.[A-Za-z0-9_-]{1,60})?$"), Wanted("NAME or NAME.NAME")]
MIN_RECORD_BYTES = 1024 * 1024
"""Chosen: less could not hold one request of a long session."""


class DashboardConfig(Section):
    """The page at /trimtab/ and its data."""

    enabled: bool = True
    keep_text: bool = False


class RecordConfig(Section):
    """Recordings of requests, for trimtab inspect and trimtab replay."""

    dir: Annotated[str, Field(min_length=1), Wanted("the path of a folder")]
    keep: Annotated[int, Field(ge=1)] | None = 10_000
    max_bytes: int = Field(1_073_741_824, ge=MIN_RECORD_BYTES)


class LogConfig(Section):
    """The log on standard error."""

    format: Literal["auto", "json", "text"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


class SessionsConfig(Section):
    """Where clients say to which session a request belongs, for the dashboard, recordings and what sessions cost."""

    headers: tuple[HeaderName, ...] = (
        "x-claude-code-session-id",
        "x-claude-code-agent-id",
        "x-claude-code-parent-agent-id",
        "session-id",
        "session_id",
        "x-session-id",
        "x-session-affinity",
    )
    fields: tuple[FieldPath, ...] = ("prompt_cache_key", "metadata.user_id", "conversation")


class TracingConfig(Section):
    """Traces by OpenTelemetry; they need the extra otel."""

    otlp_endpoint: Url | None = None
    service_name: str = Field("trimtab", min_length=1, max_length=100)
