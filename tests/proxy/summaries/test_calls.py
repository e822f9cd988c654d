"""Calls for summaries as an operator sees them."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import pytest
from support.model_learning import ListLog

from trimtab.proxy.http.errors import ProxyError, UpstreamUnreachableError
from trimtab.proxy.summaries.calls import MAX_FAILING, NoSummaryError, Payer, SummaryCall, SummaryCalls
from trimtab.proxy.telemetry.metrics import Metrics

PAYER = Payer(tell_label=lambda: "m")


@pytest.fixture
def calls(log: ListLog) -> SummaryCalls:
    return SummaryCalls(Metrics(), log)


@pytest.mark.parametrize(
    ("error", "result", "reason"),
    [
        (None, "written", None),
        (NoSummaryError("unreadable"), "failed", "unreadable"),
        (ConnectionResetError("to 10.0.0.1"), "failed", "ConnectionResetError"),
        (
            UpstreamUnreachableError("the certificate of a:1 has expired"),
            "failed",
            "the certificate of a:1 has expired",
        ),
        (asyncio.CancelledError(), "cancelled", None),
    ],
)
def test_a_call_is_recorded_however_it_ends(error, result, reason, calls: SummaryCalls, log: ListLog) -> None:
    """There is one line and one time. An error is logged by its type, or in our own words."""
    try:
        with SummaryCall(calls, PAYER, "inline", 12):
            if error is not None:
                raise error
    except (NoSummaryError, ProxyError, OSError, asyncio.CancelledError) as raised:
        assert raised is error  # noqa: PT017 - which of them it is, is the parameter's business
    (line,) = log.lines
    assert (line["result"], line["reason"], line["prompt_tokens"], line["status"]) == (result, reason, 12, None)
    metric = calls.metrics.summary_seconds.read()
    counts = [sample.labels["result"] for sample in metric.samples if sample.name.endswith("_count")]
    assert counts == [result]


def test_a_calls_seconds_are_those_from_its_start_to_its_end(log: ListLog, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[float]()
    calls = SummaryCalls(Metrics(), log, on_end=lambda _, seconds: told.append(seconds))
    monkeypatch.setattr("trimtab.proxy.summaries.calls.time", SimpleNamespace(monotonic=iter((100, 107)).__next__))
    with SummaryCall(calls, PAYER, "inline", 12):
        pass
    assert told == [log.lines[0]["seconds"]] == [7]


@pytest.mark.parametrize(("error", "told"), [(None, ""), (NoSummaryError("unreadable"), "failed")])
def test_a_span_is_an_error_only_if_there_is_no_summary(error: Exception | None, told: str, log: ListLog) -> None:
    ends = list[str]()

    class Noting:
        def note(self, attributes: object) -> None:
            """Keep nothing of them."""

        def end(self, *, error: str = "", seconds_ago: float = 0.0) -> None:
            ends.append(error)

    class Started:
        def start_within(self, *_: object) -> Noting:
            return Noting()

    with suppress(NoSummaryError), SummaryCall(SummaryCalls(Metrics(), log, Started()), PAYER, "inline", 12):
        if error is not None:
            raise error
    assert ends == [told]


def test_each_model_is_warned_of_by_itself(calls: SummaryCalls, log: ListLog) -> None:
    """There is one warning when its summaries begin to fail. Only after that, success is logged."""
    calls.note_success("a")
    for _ in range(3):
        calls.note_failure("a", "status 401")
        calls.note_failure("b", "empty")
    calls.note_success("a")
    calls.note_success("a")
    assert [(line["event"], line["model"]) for line in log.lines] == [
        ("summaries_fail", "a"),
        ("summaries_fail", "b"),
        ("summaries_work_again", "a"),
    ]
    assert log.warned == ["summaries_fail"] * 2
    assert "summary.model" in log.lines[0]["meaning"]


def test_a_line_names_the_model_and_a_metric_its_label(calls: SummaryCalls, log: ListLog) -> None:
    """The label may be a glob of the configuration, which says nothing to who reads the log."""
    payer = Payer(tell_label=lambda: "*", shown_model="gpt-4o")
    with SummaryCall(calls, payer, "inline", 12) as call:
        call.result = "rejected"
    calls.note_failure(payer.name, "empty")
    assert [line["model"] for line in log.lines] == ["gpt-4o", "gpt-4o"]
    assert calls.metrics.summaries["*", "rejected"] == 1


def test_no_more_failing_models_are_remembered_than_the_bound(calls: SummaryCalls, log: ListLog) -> None:
    for number in range(MAX_FAILING + 2):
        calls.note_failure(f"invented {number}", "empty")
    assert len(calls._failing) <= MAX_FAILING
