"""What became of a request, in metrics and in the log."""

from typing import Any
from unittest.mock import Mock

import pytest
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families
from support.events import ANSWERED
from support.journeys import DECISIONS
from support.model_learning import ListLog

from trimtab.proxy.account.outcome import Outcome
from trimtab.proxy.account.recorder import MAX_TOLD_PATHS, MAX_TOLD_SESSIONS, Phases, Recorder, fail_open
from trimtab.proxy.catalogue.prices import Bill, Tokens
from trimtab.proxy.telemetry.ledger import Ledger
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.rules.tokens.sections import Sections


@pytest.fixture
def recorder(log: ListLog) -> Recorder:
    return Recorder(Metrics(), log)


BEFORE, AFTER = Sections(100, 0, 50, 800, 50), Sections(100, 30, 0, 328, 50)
LEDGER = Ledger()
LEDGER.note(1, 4000, DECISIONS[:1])
LEDGER.note(2, 2000, DECISIONS)
OUTCOME = Outcome(
    "id",
    1000.0,
    "chat",
    "POST",
    "/v1/chat/completions",
    200,
    "compacted",
    3.0,
    upstream="local",
    model="m",
    match="m*",
    mode="enforce",
    label="m*",
    has_prompt=True,
    original_tokens=1000,
    sent_tokens=508,
    limit_tokens=2000,
    original_sections=BEFORE,
    sent_sections=AFTER,
    decisions=LEDGER.entries,
    planned=DECISIONS,
    summary_id="3f9a",
    summary_kind="summarise",
    summary_messages=34,
    upstream_seconds=2.5,
    bill=ANSWERED,
)
"""A request of which the upstream refused a first attempt. It was answered within 3 s, not in a stream."""


def _outcome(**figures: Any) -> Outcome:
    return structs.replace(OUTCOME, **figures)


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


REQUEST = {"requests_total{chat,m*,compacted,200}": 1, "answered_requests_total{m*,compacted}": 1}
TIMES = {"upstream_seconds_sum{m*}": 2.5}
SECTIONS = {
    "section_tokens_total{m*,system,original}": 100,
    "section_tokens_total{m*,memory,original}": 50,
    "section_tokens_total{m*,recent,original}": 800,
    "section_tokens_total{m*,current,original}": 50,
    "section_tokens_total{m*,system,sent}": 100,
    "section_tokens_total{m*,summary,sent}": 30,
    "section_tokens_total{m*,recent,sent}": 328,
    "section_tokens_total{m*,current,sent}": 50,
}


def test_a_compacted_request_is_counted(recorder: Recorder) -> None:
    phases = (("plan", 0.25), ("apply", 0.5), ("plan", 0.25))
    answered = {"prompt_tokens": 508, "cached_tokens": 0, "completion_tokens": 30}
    recorder.record(_outcome(**answered, prefix_kept=0.75, phase_seconds=phases))

    assert _figures(recorder) == REQUEST | TIMES | SECTIONS | {
        "prompt_tokens_total{m*,original}": 1000,
        "prompt_tokens_total{m*,sent}": 508,
        "tokens_saved_total{m*,truncate}": 500,
        "tokens_added_total{m*,pairing}": 8,
        "repairs_total{m*}": 1,
        "context_used_ratio_sum{m*}": 508 / 2000,
        "estimate_error_ratio_sum{m*}": 1.0,
        "cache_reported_tokens_total{m*}": 508.0,
        "completion_tokens_total{m*,upstream}": 30,
        "prefix_kept_ratio_sum{m*}": 0.75,
        "overhead_seconds_sum{plan}": 0.5,
        "overhead_seconds_sum{apply}": 0.5,
    }


def test_a_client_with_a_name_is_counted_by_it(recorder: Recorder) -> None:
    for name in ("", "team"):
        recorder.record(_outcome(client=name, completion_tokens=30))

    assert {name: figure for name, figure in _figures(recorder).items() if name.startswith("client_")} == {
        "client_requests_total{team,compacted}": 1,
        "client_tokens_total{team,original}": 1000,
        "client_tokens_total{team,sent}": 508,
        "client_tokens_total{team,completion}": 30,
    }


def test_a_request_only_observed_saves_nothing(recorder: Recorder) -> None:
    recorder.record(_outcome(mode="observe", outcome="observe", sent_tokens=1000, sent_sections=BEFORE))

    sent = {name.replace("original", "sent"): value for name, value in SECTIONS.items() if "original" in name}
    original = {name: value for name, value in SECTIONS.items() if "original" in name}
    assert _figures(recorder) == TIMES | original | sent | {
        "requests_total{chat,m*,observe,200}": 1,
        "answered_requests_total{m*,observe}": 1,
        "prompt_tokens_total{m*,original}": 1000,
        "prompt_tokens_total{m*,sent}": 1000,
        "context_used_ratio_sum{m*}": 0.5,
    }


def test_the_log_line_says_what_happened_and_no_text(recorder: Recorder, log: ListLog) -> None:
    recorder.record(_outcome(completion_tokens=30, is_estimated=True, prefix_kept=0.5))

    (line,) = log.lines
    assert line.pop("decisions") == [entry.describe() for entry in LEDGER.entries]
    names = ("system", "summary", "memory", "recent", "current")
    sections = zip(names, BEFORE, AFTER, strict=True)
    assert line.pop("sections") == {name: {"original": before, "sent": after} for name, before, after in sections}
    assert line.pop("summary") == {"id": "3f9a", "kind": "summarise", "messages": 34}
    figures = ("request_id", "endpoint", "method", "path", "upstream", "model", "match", "status", "outcome", "seconds")
    figures += ("original_tokens", "sent_tokens", "limit_tokens")
    told = {"prefix_kept": 0.5, "completion_tokens": 30, "is_estimated": True}
    assert line == {"event": "request", **{name: getattr(OUTCOME, name) for name in figures}, **told}


def test_a_failure_on_our_side_is_a_warning() -> None:
    """That is a failure of the upstream or of trimtab. An error of the client, or a client that left, is no warning."""
    log = Mock()
    for status, outcome, level in (
        (404, "unchanged", "info"),
        (0, "aborted", "info"),
        (499, "refused", "info"),
        (500, "refused", "warning"),
        (200, "broken", "warning"),
    ):
        Recorder(Metrics(), log).record(_outcome(status=status, outcome=outcome))
        assert log.method_calls[-1][0] == level


def test_a_fault_is_logged_by_its_type(recorder: Recorder, log: ListLog) -> None:
    phases = Phases("plan")
    with fail_open(recorder, "id", phases):
        phases.begin("apply")
        message = "PLANTED TEXT"
        raise ValueError(message)

    assert log.lines == [{"event": "fail_open", "request_id": "id", "phase": "apply", "error": "ValueError"}]
    assert _figures(recorder) == {"fail_open_total{apply}": 1}
    assert phases.seconds == ()


def test_a_second_attempt_is_counted(recorder: Recorder) -> None:
    recorder.record(_outcome(client="ann", status=400, retry="hopeless", bill=None))

    figures = _figures(recorder)
    assert figures["overflow_retries_total{m*,hopeless}"] == 1
    assert not [name for name in figures if "tokens" in name or "answered" in name]


def test_a_prompt_that_was_not_counted_counts_as_the_upstream_reports_it() -> None:
    bill = Bill(Tokens.of(80), Tokens.of(80))
    assert _outcome(has_prompt=False, bill=bill).counted == (80, 80)
    assert _outcome(recall_prompt_tokens=70).counted == (1000, 508 + 70)


def test_a_client_that_halves_the_window_is_told_once_for_each_model(recorder: Recorder, log: ListLog) -> None:
    for fields in ({"max_tokens": 2000}, {"max_tokens": 32_000}, {"max_tokens": 1999, "label": "n"}, {"label": "o"}):
        recorder.record(_outcome(**fields))
    told = [line for line in log.lines if line["event"] == "window_halved"]
    assert [(line["model"], line["limit_tokens"], line["max_tokens"]) for line in told] == [("m*", 2000, 2000)]
    for number in range(MAX_TOLD_PATHS):
        recorder.record(_outcome(max_tokens=2000, label=str(number)))
    assert len([line for line in log.lines if line["event"] == "window_halved"]) == MAX_TOLD_PATHS


def test_a_head_that_fills_the_window_is_told_once_a_session(recorder: Recorder, log: ListLog) -> None:
    for session, tokens in (("a", 999), ("a", 1560), ("a", 1700), ("b", 1000), ("a", 1700), ("c", 999)):
        recorder.record(_outcome(session=session, limit_tokens=2000, original_sections=(tokens, 0, 0, 1, 1)))
    recorder.record(_outcome(session="d", limit_tokens=0, original_sections=(5, 0, 0, 0, 0)))
    remedy = "send fewer tools (drop_tools), or raise the window: the server's, and context_window if it is set"
    told = [(line["session"], line["meaning"]) for line in log.lines if line["event"] == "head_large"]
    said = "the system prompt and the tools take {} of the limit: " + remedy
    assert told == [("a", said.format("78%")), ("b", said.format("50%"))]
    for number in range(MAX_TOLD_SESSIONS):
        recorder.record(_outcome(session=str(number), limit_tokens=2, original_sections=(1, 0, 0, 0, 0)))
    assert len([line for line in log.lines if line["event"] == "head_large"]) == 2 + MAX_TOLD_SESSIONS
    recorder.record(_outcome(session="a", limit_tokens=2, original_sections=(1, 0, 0, 0, 0)))
    assert log.lines[-1]["session"] == "a"
    for label in ("x", "x", "y"):
        recorder.record(_outcome(session="", label=label, limit_tokens=2, original_sections=(1, 0, 0, 0, 0)))
    assert [line["model"] for line in log.lines if line.get("session") == ""] == ["x", "y"]


def test_paths_that_are_not_compacted_are_told_once_and_up_to_a_bound(recorder: Recorder, log: ListLog) -> None:
    for number in [*range(MAX_TOLD_PATHS + 5), 0]:
        recorder.record(_outcome(path=f"/v{number}/completions", is_uncompacted=True))
        recorder.record(_outcome(path="/refused"))
    told = [line["path"] for line in log.lines if line["event"] == "not_compacted"]
    assert told == [f"/v{number}/completions" for number in range(MAX_TOLD_PATHS)]


def test_the_upstreams_cache_is_told_as_far_as_it_reports_it(log: ListLog) -> None:
    """Zero that is reported is logged; what is not reported is absent. A miss is told with its cause."""
    names = ("cached_tokens", "written_tokens", "fresh_tokens")
    for prompt, cached, written, expected in (
        (508, 384, 100, {"cached_tokens": 384, "written_tokens": 100, "fresh_tokens": 24}),
        (508, 0, None, {"cached_tokens": 0, "fresh_tokens": 508}),
        (508, None, 0, {"written_tokens": 0, "fresh_tokens": 508}),
        (None, 384, None, {"cached_tokens": 384}),
        (508, None, None, {}),
    ):
        recorder = Recorder(Metrics(), log)
        told = {"prompt_tokens": prompt, "cached_tokens": cached, "written_tokens": written, "cache_miss": "expired"}
        recorder.record(_outcome(**told))
        line, figures = log.lines[-1], _figures(recorder)
        assert {name: line[name] for name in names if name in line} == expected
        assert (line["cache_miss"], figures["cache_misses_total{expired,m*}"]) == ("expired", 1)
        assert figures.get("cached_prompt_tokens_total{m*}", 0) == expected.get("cached_tokens", 0)
        assert figures.get("cache_write_tokens_total{m*}", 0) == expected.get("written_tokens", 0)


def test_a_key_is_told_again_on_another_day(recorder: Recorder, log: ListLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for now, key in ((86399.0, "k"), (86399.0, "k"), (86400.0, "k")):
        monkeypatch.setattr("trimtab.proxy.account.recorder.time.time", lambda now=now: now)
        recorder.record_key("ana", key)
    recorder.record_key("ana", "sha256:" + "ab" * 32)
    assert [line["key"] for line in log.lines] == ["8254c329", "8254c329", "abababab"]


def test_after_a_phase_within_another_the_outer_one_is_current_again() -> None:
    """So a fault counts under the innermost phase that has not ended."""
    phases = Phases("plan")
    outer = phases.begin("summary")
    inner = phases.begin("apply")
    assert phases.current == "apply"
    phases.end(inner)
    phases.end(outer)

    assert phases.current == "plan"
    assert [name for name, _ in phases.seconds] == ["apply", "summary"]
