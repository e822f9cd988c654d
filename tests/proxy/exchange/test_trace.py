"""The spans of one request, without a collector. tests/proxy/telemetry/test_otlp.py has those that reach one."""

from dataclasses import dataclass, field
from typing import Any

from multidict import CIMultiDict
from support.journeys import arrive

from trimtab.proxy.config.load import load_config
from trimtab.proxy.exchange.early_answer import Opening
from trimtab.proxy.exchange.route import choose_route
from trimtab.proxy.exchange.trace import begin_trace
from trimtab.proxy.telemetry.spans import find_current
from trimtab.proxy.wire.chat.codec import CHAT


@dataclass
class _Noted:
    """A span that keeps what it is told."""

    told: dict[str, Any]
    after: "_Noted | None"
    moments: list[str] = field(default_factory=list)
    error: str | None = None
    is_parent: bool = False

    @property
    def has_children(self) -> bool:
        return self.is_parent

    def write_into(self, headers) -> None:
        headers["traceparent"] = "ours"

    def note(self, attributes) -> None:
        self.told |= attributes

    def note_moment(self, name) -> None:
        self.moments.append(name)

    def end(self, *, error="", seconds_ago=0.0) -> None:
        self.error = error


class _Noting:
    def __init__(self) -> None:
        self.spans: list[_Noted] = []

    def start(self, name, attributes, headers=(), after=None) -> _Noted:
        self.spans.append(_Noted({"name": name, **attributes}, after))
        return self.spans[-1]


def _begin(spans: Any) -> Any:
    config, arrival = load_config(settings=["upstream.base_url=https://api.x.ai/v1"], environment={}), arrive()
    route = choose_route(config, arrival, CIMultiDict(), "m", CHAT)
    assert route.url is not None
    return begin_trace(spans, arrival, route.target.shown_model, route.url, CHAT)


def test_what_is_sent_again_has_a_span_of_its_own() -> None:
    spans = _Noting()
    trace = _begin(spans)
    trace.send(CIMultiDict())
    trace.hear(Opening(400))
    headers = CIMultiDict({"traceparent": "theirs"})
    trace.send(headers)
    trace.hear(Opening(200))
    first, second = spans.spans
    assert find_current() is second
    trace.end({"a": 1}, error="", seconds_ago=0.0)

    assert (first.error, second.error, second.after, headers["traceparent"]) == ("400", "", first, "ours")
    assert (first.told["name"], first.told["server.address"], first.told["gen_ai.provider.name"]) == (
        "chat m",
        "api.x.ai",
        "x_ai",
    )
    assert (second.told["http.request.resend_count"], second.told["a"]) == (1, 1)
    assert find_current() is None


def test_a_request_that_was_not_sent_has_no_span_unless_a_summary_was_asked_for() -> None:
    for is_parent, error in ((False, None), (True, "context_length_exceeded")):
        spans = _Noting()
        trace = _begin(spans)
        spans.spans[0].is_parent = is_parent
        trace.end({}, error="context_length_exceeded", seconds_ago=0.0)
        assert spans.spans[0].error == error
