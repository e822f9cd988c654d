"""What is known of one request when it has been served."""

import time
from unittest.mock import Mock

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.compaction.compactor import Compacted
from proxy.exchange.record import Exchange, Recorder
from proxy.http.errors import ContextExceededError
from proxy.http.relay import Relayed
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.pace import Pace
from rules.conversation import Conversation, Decision

DECISIONS = (
    Decision("truncate", "2 tool results over 4000 tokens", 900, 400, 2, 3),
    Decision("pairing", "1 calls answered", 400, 408, 1, 7),
)
COMPACTED = Compacted(b'{"messages":["PLANTED TEXT"]}', Conversation((), 0, ()), DECISIONS, 1000, 508, 2000)


class _Log:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []

    def info(self, event: str, **fields: object) -> None:
        self.lines.append({"event": event, **fields})

    debug = warning = error = info


@pytest.fixture
def log() -> _Log:
    return _Log()


@pytest.fixture
def recorder(log: _Log) -> Recorder:
    return Recorder(Metrics(), log)


def _exchange(mode: str = "enforce", status: int = 200, outcome: str = "compacted") -> Exchange:
    """A request that arrived at 100 s, left at 100.5 s and was answered by 103 s, not in a stream."""
    relayed = Relayed(status=status, last_byte_at=103.0)
    return Exchange(
        endpoint="chat",
        method="POST",
        path="/v1/chat/completions",
        request_id="id",
        started_at=100.0,
        sent_at=100.5,
        outcome=outcome,
        mode=mode,
        model="m",
        shown_model="m",
        match="m*",
        upstream="local",
        compacted=COMPACTED,
        relayed=relayed,
    )


def _figures(recorder: Recorder) -> dict[str, float]:
    """Our own counters and sums that are not zero, as `name{label values by label name}`."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(recorder.metrics.render().decode()):
        for sample in family.samples:
            is_ours = sample.name.startswith("trimtab_")
            if is_ours and sample.name.endswith(("_total", "_sum")) and sample.value:
                labels = ",".join(value for _, value in sorted(sample.labels.items()))
                found[f"{sample.name.removeprefix('trimtab_')}{{{labels}}}"] = sample.value
    return found


REQUEST = {"requests_total{chat,m*,compacted,200}": 1}
TIMES = {"upstream_seconds_sum{m*}": 2.5}


def test_a_compacted_request_is_counted(recorder: Recorder) -> None:
    """Tokens as they came and as they left, what each rule did, times, the upstream's own figures."""
    exchange = _exchange()
    exchange.reported_prompt_tokens, exchange.completion_tokens, exchange.completion_source = 508, 30, "upstream"
    recorder.record(exchange)

    assert _figures(recorder) == REQUEST | TIMES | {
        "prompt_tokens_total{m*,original}": 1000,
        "prompt_tokens_total{m*,sent}": 508,
        "tokens_saved_total{m*,truncate}": 500,
        "tokens_added_total{m*,pairing}": 8,
        "context_used_ratio_sum{m*}": 508 / 2000,
        "estimate_error_ratio_sum{m*}": 1.0,
        "completion_tokens_total{m*,upstream}": 30,
    }


STREAM_TIMES = ("time_to_first_token_seconds_sum{m*}", "output_tokens_per_second_sum{m*}")


def _stream_times(recorder: Recorder, pace: Pace, completion_tokens: int, streamed_tokens: int | None) -> list[float]:
    """First-token time and tokens per second of a stream that came at this pace; 0 if nothing was observed."""
    exchange = _exchange()
    exchange.relayed.pace, exchange.completion_tokens = pace, completion_tokens
    exchange.streamed_tokens = streamed_tokens
    recorder.record(exchange)
    figures = _figures(recorder)
    return [figures.get(name, 0) for name in STREAM_TIMES]


def test_a_stream_has_a_first_token_and_a_rate(recorder: Recorder) -> None:
    """From the request's arrival at 100 s to the first text at 101 s; then half of the text came in 2 seconds."""
    pace = Pace(first_at=101.0, last_at=103.0, first_chars=200, chars=400)

    assert _stream_times(recorder, pace, 60, 60) == [1.0, 15.0]


def test_hidden_reasoning_does_not_raise_the_rate(recorder: Recorder) -> None:
    """Tokens whose text was not sent are no part of what came in a stream."""
    pace = Pace(first_at=101.0, last_at=103.0, first_chars=200, chars=400)

    assert _stream_times(recorder, pace, 2060, 60) == [1.0, 15.0]
    assert _stream_times(Recorder(Metrics(), _Log()), pace, 2060, None) == [1.0, 0]


def test_a_stream_in_one_chunk_has_a_first_token_and_no_rate(recorder: Recorder) -> None:
    """Nobody knows how long its text took."""
    assert _stream_times(recorder, Pace(101.0, 101.0, 400, 400), 60, 60) == [1.0, 0]


def test_a_request_only_observed_saves_nothing(recorder: Recorder) -> None:
    """The original went out, so sent is original, and no rule is credited."""
    recorder.record(_exchange("observe", outcome="observe"))

    assert _figures(recorder) == TIMES | {
        "requests_total{chat,m*,observe,200}": 1,
        "prompt_tokens_total{m*,original}": 1000,
        "prompt_tokens_total{m*,sent}": 1000,
        "context_used_ratio_sum{m*}": 0.5,
    }


def test_the_log_line_says_what_happened_and_no_text(recorder: Recorder, log: _Log) -> None:
    """Status, outcome, tokens and decisions; never a word of the request."""
    exchange = _exchange()
    exchange.started_at = time.monotonic()
    exchange.completion_tokens = 30
    recorder.record(exchange)

    (line,) = log.lines
    assert 0 <= float(str(line.pop("seconds"))) < 60
    assert line == {
        "event": "request",
        "request_id": "id",
        "endpoint": "chat",
        "method": "POST",
        "path": "/v1/chat/completions",
        "upstream": "local",
        "model": "m",
        "match": "m*",
        "status": 200,
        "outcome": "compacted",
        "original_tokens": 1000,
        "sent_tokens": 508,
        "limit_tokens": 2000,
        "decisions": [
            {"rule": "truncate", "saved_tokens": 500, "first_changed": 3},
            {"rule": "pairing", "saved_tokens": -8, "first_changed": 7},
        ],
        "completion_tokens": 30,
    }


def test_the_model_is_logged_as_it_was_asked_for(recorder: Recorder, log: _Log) -> None:
    """In the form that may be logged, also where no upstream has vouched for it; no glob where it matches none."""
    exchange = _exchange(status=404)
    exchange.model, exchange.shown_model, exchange.match = "typo\n", "typo\\n", None
    recorder.record(exchange)

    (line,) = log.lines
    assert line["model"] == "typo\\n"
    assert "match" not in line
    assert recorder.label(exchange) == "other"


def test_what_is_not_known_is_not_logged(recorder: Recorder, log: _Log) -> None:
    """A request that was turned away has neither a model nor an upstream."""
    recorder.record(Exchange("other", "GET", "/v1/models"))

    (line,) = log.lines
    assert {"upstream", "model", "match"} & line.keys() == set()


@pytest.mark.parametrize(
    ("relayed", "level"),
    [
        (Relayed(status=200, last_byte_at=1.0), "info"),
        (Relayed(status=404, last_byte_at=1.0), "info"),
        (Relayed(), "info"),
        (Relayed(status=502, last_byte_at=1.0), "warning"),
        (Relayed(status=200, broken=True), "warning"),
    ],
)
def test_a_failure_on_our_side_is_a_warning(relayed: Relayed, level: str) -> None:
    """An upstream that fails or breaks off, or we; not what a client did wrong, and not one that left."""
    log = Mock()
    exchange = _exchange()
    exchange.relayed = relayed
    Recorder(Metrics(), log).record(exchange)

    assert [call[0] for call in log.method_calls] == [level]


def test_an_arrival_and_a_page_are_told_to_those_who_debug(log: _Log) -> None:
    """A request that hangs is seen before its end; pages are no requests."""
    recorder = Recorder(Metrics(), log)
    recorder.record_arrival(_exchange())
    recorder.record_page("/trimtab/health", 200)

    assert log.lines == [
        {"event": "request_begun", "request_id": "id", "method": "POST", "path": "/v1/chat/completions"},
        {"event": "page", "path": "/trimtab/health", "status": 200},
    ]


def test_a_success_without_a_transcript_vouches_for_nothing(recorder: Recorder) -> None:
    """What was not read as a chat request says nothing about a model."""
    exchange = _exchange()
    exchange.compacted, exchange.match = None, None
    recorder.record(exchange)

    assert recorder.label(exchange) == "other"


@pytest.mark.parametrize(
    ("relayed", "outcome"),
    [
        (Relayed(), "aborted"),
        (Relayed(status=200, broken=True), "broken"),
        (Relayed(status=500, last_byte_at=1.0), "compacted"),
    ],
)
def test_how_it_ended_goes_before_what_was_done(recorder: Recorder, log: _Log, relayed: Relayed, outcome: str) -> None:
    """A client that left, an upstream that broke off; an upstream's error is an answer like any other."""
    exchange = _exchange()
    exchange.relayed = relayed
    recorder.record(exchange)

    assert [(line["outcome"], line["status"]) for line in log.lines] == [(outcome, relayed.status)]


def test_a_refusal_is_recorded_with_its_code(recorder: Recorder, log: _Log) -> None:
    """The proxy's own error: its status and code, and its words, which hold no message text."""
    exchange = _exchange()
    exchange.relayed = Relayed()
    exchange.refuse(ContextExceededError("This model's maximum context length is 8000 tokens."))
    recorder.record(exchange)

    (line,) = log.lines
    assert (line["status"], line["outcome"], line["error"]) == (400, "refused", "context_length_exceeded")
    assert line["reason"] == "This model's maximum context length is 8000 tokens."


def test_a_fault_is_logged_by_its_type(recorder: Recorder, log: _Log) -> None:
    """And counted by the phase it happened in; what the error says may be the client's text."""
    exchange = _exchange()
    exchange.phase = "plan"
    recorder.record_fault(exchange, ValueError("PLANTED TEXT"))

    assert log.lines == [{"event": "fail_open", "request_id": "id", "phase": "plan", "error": "ValueError"}]
    assert _figures(recorder) == {"fail_open_total{plan}": 1}


def test_the_answers_headers_say_what_was_done() -> None:
    """Structured fields: tokens, decisions, and the time that the proxy took."""
    assert _exchange().response_headers() == [
        ("x-trimtab-request-id", "id"),
        ("Server-Timing", "trimtab;dur=500.0"),
        ("x-trimtab-tokens", "original=1000, sent=508, limit=2000"),
        ("x-trimtab-decisions", "truncate;saved=500, pairing;saved=-8"),
    ]


def test_a_request_only_observed_says_that_the_original_went_out() -> None:
    """The decisions are shown, the tokens sent are those of the original."""
    headers = dict(_exchange("observe").response_headers())

    assert headers["x-trimtab-tokens"] == "original=1000, sent=1000, limit=2000"


def test_where_nothing_was_done_there_is_no_decision() -> None:
    """No empty header, and no tokens where there was no transcript."""
    exchange = _exchange()
    exchange.compacted = Compacted(b"{}", Conversation((), 0, ()), (), 5, 5, 10)
    assert "x-trimtab-decisions" not in dict(exchange.response_headers())
    exchange.compacted = None
    assert [name for name, _ in exchange.response_headers()] == ["x-trimtab-request-id", "Server-Timing"]


def test_request_ids_are_all_different() -> None:
    """And long enough to stay so."""
    ids = {Exchange("chat", "POST").request_id for _ in range(100)}

    assert len(ids) == 100
    assert {len(item) for item in ids} == {24}
