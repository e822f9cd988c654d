"""Lines of a log; tests/end_to_end/test_replay.py compares whole logs with the metrics."""

from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.dialect import Dialect
from support.recordings import make_figures
from support.sessions import make_session, requests_of

from trimtab.proxy.account.recordings.format import RecordedCall
from trimtab.proxy.catalogue.prices import Tokens
from trimtab.proxy.cli.records.inputs import LogReader, Sessions, estimate_tokens, find_sent, is_log, split_turns
from trimtab.proxy.cli.records.sums import RequestFigures
from trimtab.proxy.wire.codec import UndecodableError
from trimtab.rules.tokens.sections import Sections

NOW = "2026-11-23T04:56:46Z"
PLANNED = {
    "original_tokens": 10,
    "sent_tokens": 10,
    "limit_tokens": 100,
    "sections": {"system": {"original": 10, "sent": 10}},
}


def _line(**fields: Any) -> bytes:
    return orjson.dumps(
        {"event": "request", "timestamp": NOW, "status": 200, "outcome": "unchanged", "endpoint": "chat", **fields}
    )


def _entry(rule: str, before: int, after: int, *, attempt: int = 1, limit: int = 100) -> dict[str, Any]:
    sizes = {"before_tokens": before, "after_tokens": after, "saved_tokens": before - after}
    return {"rule": rule, "attempt": attempt, "limit_tokens": limit, **sizes}


def _read(reader: LogReader, **fields: Any) -> RequestFigures:
    told = reader.read(_line(**fields))
    assert isinstance(told, RequestFigures)
    return told


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, True), ({"outcome": "observe"}, False), ({"mode": "observe", "outcome": "broken"}, False),
        ({"retry": "recovered"}, True), ({"retry": "refused"}, False), ({"retry": "hopeless"}, False),
        ({"sent_tokens": 0}, False),
    ],
)  # fmt: skip
def test_decisions_count_if_they_were_sent_and_not_refused(fields: dict[str, Any], counts: bool) -> None:  # noqa: FBT001
    told = _read(LogReader(), **{**PLANNED, "decisions": [_entry("tidy", 12, 10)], **fields})
    assert [one.saved_tokens for one in told.counted.decisions] == ([2] if counts else [])


@pytest.mark.parametrize(
    ("entries", "sent"),
    [
        ([], []),
        ([_entry("tidy", 9, 8), _entry("prune", 8, 5)], ["tidy", "prune"]),
        ([_entry("tidy", 9, 8), _entry("refused", 8, 8), _entry("prune", 9, 5, attempt=2, limit=6)], ["prune"]),
        ([_entry("prune", 9, 5, limit=6), _entry("lesson_test", 9, 9), _entry("tidy", 9, 8)], ["tidy"]),
        ([_entry("cold_cache", 9, 9), _entry("prune", 9, 5)], ["prune"]),
    ],
)
def test_of_several_plans_the_one_that_was_sent_is_the_last(entries: list[dict[str, Any]], sent: list[str]) -> None:
    found = find_sent([SimpleNamespace(**entry) for entry in entries])
    assert [entry.rule for entry in found] == sent


def test_a_summary_is_told_with_what_was_charged_under_the_label_of_its_model() -> None:
    line = {"event": "summary", "timestamp": NOW, "model": "m", "result": "written", "prompt_tokens": 900}
    line |= {"completion_tokens": 60, "cached_tokens": 512, "written_tokens": None, "status": 200}
    assert LogReader().read(orjson.dumps(line)) == RecordedCall(
        "m", "", "written", 0.0, 900, 60, Tokens(388, 512, 0, 60)
    )
    reader = LogReader()
    assert _read(reader, **PLANNED, model="m", match="*").event.label == "*"
    assert reader.read(orjson.dumps(line)).label == "*"


@pytest.mark.parametrize("line", [b"", b"12:01:03 gpt-4o 200 compacted", b"{}", b'{"event": 5}', b"\xff"])
def test_what_is_no_line_of_a_log_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a line of a log"):
        LogReader().read(line)
    assert not is_log(line)


def test_tokens_are_the_upstreams_where_it_reports_them() -> None:
    """Else they are estimated from the beginning that equals the previous request. Unanswered requests cost nothing."""
    reported = _read(LogReader(), **PLANNED, cached_tokens=4, fresh_tokens=5, written_tokens=1, completion_tokens=7)
    estimated = make_figures(
        "m", "chat", 200, "unchanged", Sections(4000), Sections(4000), prefix_kept=0.5, completion_tokens=7
    )
    assert estimate_tokens(reported) == Tokens(5, 4, 1, 7)
    assert estimate_tokens(estimated) == Tokens(4000 - 1920, 1920, 0, 7)
    assert estimate_tokens(_read(LogReader(), **PLANNED | {"status": 500})) is None


def test_a_session_is_named_after_the_place_where_it_began() -> None:
    """A longer transcript with the same beginning belongs to it; one with another beginning or model does not."""
    sessions = Sessions()
    assert sessions.name("m", [b"0", b"a"], "line 1") == "line 1"
    assert sessions.name("m", [b"0", b"a", b"b", b"c"], "line 2") == "line 1"
    assert sessions.name("m", [b"0", b"x"], "line 3") == "line 3"
    assert sessions.name("n", [b"0", b"a", b"b", b"c", b"d"], "line 4") == "line 4"
    assert sessions.name("m", [b"0", b"a", b"b", b"c"], "line 5") == "line 1"


@each_dialect
def test_a_session_is_split_into_the_requests_of_its_client(dialect: Dialect) -> None:
    """In each dialect they are those that the client has sent."""
    session = make_session(5)
    whole = dialect.write(session["messages"][:-1], session["tools"])
    sent = [dialect.write(messages, session["tools"]) for messages in requests_of(session)]
    assert [orjson.loads(body) for body in split_turns(orjson.dumps(whole), dialect.name)] == sent


@pytest.mark.parametrize("body", [b"[]", b"no JSON", b'{"messages": 5}', b'{"messages": [5]}'])
def test_what_is_no_request_is_not_split(body: bytes) -> None:
    with pytest.raises(UndecodableError):
        list(split_turns(body))
