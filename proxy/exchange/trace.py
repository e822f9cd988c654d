"""The spans of one request: one for each time that it is sent to its upstream.

Law: without tracing, nothing is done. The first span begins before the request is compacted, so that calls for
summaries are its children.
"""

from typing import TYPE_CHECKING

from multidict import CIMultiDict
from yarl import URL

from trimtab.proxy.exchange.arrival import Arrival
from trimtab.proxy.exchange.early_answer import Opening
from trimtab.proxy.telemetry.spans import Attributes, describe_server, set_current
from trimtab.proxy.wire.codec import Codec

if TYPE_CHECKING:
    from trimtab.proxy.telemetry.otlp import Span, Spans

SENT = "trimtab.sent"
"""The event that ends the time for compaction."""


class Trace:
    """The spans of a request that is traced."""

    def __init__(self, spans: "Spans", arrival: Arrival, name: str, attributes: Attributes) -> None:
        self._spans = spans
        self._arrival = arrival
        self._name = name
        self._attributes = attributes
        self._attempts = 0
        self._opening: Opening | None = None
        self._span = self._begin({}, None)

    def _begin(self, attributes: Attributes, after: "Span | None") -> "Span":
        told = {**self._attributes, **attributes}
        begun = self._spans.start(self._name, told, self._arrival.headers, after=after)
        set_current(begun)
        return begun

    def send(self, headers: CIMultiDict[str]) -> None:
        """Note that the request is sent with these headers, which get the span's `traceparent`."""
        if self._attempts:
            self._span.end(error=_name_error(self._opening) or "refused")
            self._span = self._begin({"http.request.resend_count": self._attempts}, self._span)
        self._attempts += 1
        self._opening = None
        self._span.note_moment(SENT)
        self._span.write_into(headers)

    def hear(self, opening: Opening) -> None:
        self._opening = opening
        self._span.note({"http.response.status_code": opening.status})

    def end(self, attributes: Attributes, *, error: str, seconds_ago: float) -> None:
        """Note what became of the request. `error`: the kind of error in one word; empty for none."""
        set_current(None)
        if not self._attempts and not self._span.has_children:
            return  # there was no call
        self._span.note(attributes)
        self._span.end(error=error or _name_error(self._opening), seconds_ago=seconds_ago)


def _name_error(opening: Opening | None) -> str:
    if opening is None:
        return ""
    if opening.overflow is not None:
        return "context_length_exceeded"
    return str(opening.status) if opening.status >= 400 else ""


def begin_trace(spans: "Spans", arrival: Arrival, model: str, url: URL, codec: Codec) -> Trace:
    """Begin the spans of a request that is about to be compacted and sent. `model`: in the form that may be logged."""
    operation = "count_tokens" if codec.is_count else "chat"
    attributes = {
        "gen_ai.operation.name": operation,
        **describe_server(url.host, url.port, codec.name),
        "trimtab.request_id": arrival.request_id,
        "trimtab.endpoint": arrival.endpoint,
    }
    if model:
        attributes["gen_ai.request.model"] = model
    return Trace(spans, arrival, f"{operation} {model}".rstrip(), attributes)
