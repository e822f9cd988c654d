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

    enabled: bool = Field(
        default=True,
        description="Whether the dashboard at /trimtab/ is served. Its data are kept in at most 1/64 of "
        "limits.max_memory_bytes, and lost at a restart.",
    )
    keep_text: bool = Field(
        default=False,
        description="Whether the dashboard also shows the text of changed messages and summaries. It is kept in "
        "memory (at most 1/16 of limits.max_memory_bytes), for the newest requests, and can be deleted for each "
        "session. Everyone who may open the dashboard can read it. So it needs admin_token if there are client_keys, "
        "or if trimtab listens on an address other than loopback.",
    )


class RecordConfig(Section):
    """Recordings of requests, for trimtab inspect and trimtab replay."""

    dir: Annotated[str, Field(min_length=1), Wanted("the path of a folder")] = Field(
        description="The folder of the recordings. It is made if it does not exist. Only its owner can read it. "
        "Recordings contain the text of messages, but no keys.",
    )
    keep: Annotated[int, Field(ge=1)] | None = Field(
        10_000,
        description="The number of newest requests that are kept, with the calls for summaries of their time. "
        "null: max_bytes alone decides.",
    )
    max_bytes: int = Field(
        1_073_741_824,
        ge=MIN_RECORD_BYTES,
        description="The size in bytes that all recordings together may have. The oldest are deleted first.",
    )


class LogConfig(Section):
    """The log on standard error."""

    format: Literal["auto", "json", "text"] = Field(
        "auto",
        description="The form of the log. auto: text on a terminal, else JSON. The option --log-format wins.",
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        "info",
        description="The least severity that is logged. The option --log-level wins.",
    )


class SessionsConfig(Section):
    """Where clients say to which session a request belongs, for the dashboard, recordings and what sessions cost."""

    headers: tuple[HeaderName, ...] = Field(
        (
            "x-claude-code-session-id",
            "x-claude-code-agent-id",
            "x-claude-code-parent-agent-id",
            "session-id",
            "session_id",
            "x-session-id",
            "x-session-affinity",
        ),
        examples=[["x-my-session"]],
        description="Headers with the id of a session or of an agent in it. Requests with the same values that begin "
        "with the same message are one session.",
    )
    fields: tuple[FieldPath, ...] = Field(
        ("prompt_cache_key", "metadata.user_id", "conversation"),
        examples=[["prompt_cache_key", "metadata.chat_id"]],
        description="Members of the body that tell sessions apart, too: NAME or NAME.NAME. Several sessions may share "
        "such a value, so those that begin alike are also told apart by the first message that differs.",
    )


class TracingConfig(Section):
    """Traces by OpenTelemetry; they need the extra otel."""

    otlp_endpoint: Url | None = Field(
        None,
        examples=["http://127.0.0.1:4318"],
        description="The collector that spans are sent to by OTLP over HTTP; /v1/traces is added. null: no traces, "
        "whatever the environment says. Spans contain no text of messages and no keys. Forwarded requests then carry "
        "the span's traceparent.",
    )
    service_name: str = Field(
        "trimtab",
        min_length=1,
        max_length=100,
        examples=["trimtab-eu"],
        description="The attribute service.name of the spans.",
    )
