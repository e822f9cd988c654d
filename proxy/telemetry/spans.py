"""The span of the current request, how a span names an upstream, and the opening. Without tracing there is no span.

Law: no text of a message and no credential is in a span. Nothing here delays or fails a request, and without
`tracing.otlp_endpoint` no library of OpenTelemetry is loaded.

The names of attributes come from OpenTelemetry's semantic conventions for generative AI, see CONVENTIONS.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.schema import Config
from trimtab.proxy.telemetry.metrics import read_version

if TYPE_CHECKING:
    from trimtab.proxy.telemetry.otlp import Span, Spans

CONVENTIONS = "024a4f944a1291fcb627c9c47da69e79868dd15e"
"""The commit of github.com/open-telemetry/semantic-conventions-genai whose names are used. It has no release yet."""

Attributes = Mapping[str, str | bool | int | float | Sequence[str]]

_PROVIDERS = {
    "anthropic.com": "anthropic",
    "openai.azure.com": "azure.ai.openai",
    "services.ai.azure.com": "azure.ai.inference",
    "amazonaws.com": "aws.bedrock",
    "cohere.com": "cohere",
    "cohere.ai": "cohere",
    "deepseek.com": "deepseek",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "groq.com": "groq",
    "mistral.ai": "mistral_ai",
    "moonshot.ai": "moonshot_ai",
    "openai.com": "openai",
    "perplexity.ai": "perplexity",
    "x.ai": "x_ai",
}
"""`gen_ai.provider.name` by the end of the upstream's host name. Source: the conventions' list of known values."""


_current: "ContextVar[Span | None]" = ContextVar("trimtab_span", default=None)


def find_current() -> "Span | None":
    """The span of the request that is served here, also in tasks that it has started; None if it is not traced."""
    return _current.get()


def set_current(span: "Span | None") -> None:
    _current.set(span)


def describe_server(host: str | None, port: int | None, dialect: str) -> dict[str, str | int]:
    name = (host or "").lower().rstrip(".")
    known = (provider for end, provider in _PROVIDERS.items() if name == end or name.endswith(f".{end}"))
    provider = next(known, "anthropic" if dialect == "messages" else "openai")
    told: dict[str, str | int] = {"gen_ai.provider.name": provider}
    if name:
        told["server.address"] = name
    if name and port is not None:
        told["server.port"] = port
    return told


def open_spans(config: Config, log: Any) -> "Spans | None":
    """The spans of this process; None without `tracing.otlp_endpoint`. Raises ConfigError if a package is missing."""
    endpoint = config.tracing.otlp_endpoint
    if endpoint is None:
        return None
    require_exporter(config)
    from trimtab.proxy.telemetry.otlp import Spans  # noqa: PLC0415 - optional packages, and slow to import

    return Spans(endpoint, config.tracing.service_name, read_version(), log)


def require_exporter(config: Config) -> None:
    """Raise ConfigError if the configuration asks for traces and a package is missing. No collector is asked."""
    if config.tracing.otlp_endpoint is None:
        return
    try:
        import trimtab.proxy.telemetry.otlp  # noqa: F401, PLC0415 - optional packages, and slow to import
    except ImportError as error:
        message = "tracing.otlp_endpoint: traces need packages that are not installed: pip install 'trimtab[otel]'"
        raise ConfigError(message) from error
