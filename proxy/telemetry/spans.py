"""Spans, as the rest of trimtab sees them. Those in this module are not traced: their methods do nothing.

Law: no text of a message and no credential is in a span. Nothing here delays or fails a request, and without
`tracing.otlp_endpoint` no library of OpenTelemetry is loaded.

The names of attributes come from OpenTelemetry's semantic conventions for generative AI, see CONVENTIONS.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from contextvars import ContextVar

CONVENTIONS = "024a4f944a1291fcb627c9c47da69e79868dd15e"
"""The commit of github.com/open-telemetry/semantic-conventions-genai whose names are used. It has no release yet."""

Attributes = Mapping[str, str | bool | int | float | Sequence[str]]
Headers = Sequence[tuple[str, str]]

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


class Span:
    """A call to an upstream that is not traced."""

    __slots__ = ()

    @property
    def has_children(self) -> bool:
        return False

    def write_into(self, headers: MutableMapping[str, str]) -> None:
        """Have the request name this span as its parent: `traceparent` and `tracestate`."""

    def note(self, attributes: Attributes) -> None:
        """Add attributes."""

    def note_moment(self, name: str) -> None:
        """Add an event that happens now."""

    def end(self, *, error: str = "", seconds_ago: float = 0.0) -> None:
        """The call has ended. `error`: what kind of error ended it, in one word; empty for none."""


NO_SPAN = Span()


class Spans:
    """Starts the spans of a process: none, because tracing is off."""

    is_on = False

    def start(self, name: str, attributes: Attributes, headers: Headers = (), after: Span = NO_SPAN) -> Span:
        """Start a span for a call: a child of the one that the headers name, else of `after`, else of none."""
        del name, attributes, headers, after
        return NO_SPAN

    def start_within(self, parent: Span, name: str, attributes: Attributes) -> Span:
        """Start a child of a span; a new trace if the parent is not traced."""
        del parent, name, attributes
        return NO_SPAN

    async def close(self) -> None:
        """Send what has not been sent yet, within a bounded time."""


NO_SPANS = Spans()

_current: ContextVar[Span] = ContextVar("trimtab_span", default=NO_SPAN)


def find_current() -> Span:
    """The span of the request that is served here, also in tasks that it has started."""
    return _current.get()


def set_current(span: Span) -> None:
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
