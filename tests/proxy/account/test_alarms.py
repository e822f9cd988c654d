"""What is wrong now is told with its reason and its remedy; what is usual is not."""

from contextlib import closing

from support.events import make_event, make_window

from trimtab.proxy.account.alarms import NEWEST, find_alarms, read_recent
from trimtab.proxy.account.history import table, texts
from trimtab.proxy.account.outcome import Outcome
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.proxy.telemetry.savings import Samples

NOTHING = Samples()
GOOD = [make_event(str(number)) for number in range(40)]


def _tell(*recent: Outcome) -> list[str]:
    return [alarm.describe() for alarm in find_alarms(recent, NOTHING)]


def _count_calls(**results: int) -> Samples:
    metrics = Metrics()
    for result, number in results.items():
        for _ in range(number):
            metrics.summary_seconds.observe(("m", result), 1.0)
    return Samples.of(metrics.collect_all())


def test_what_goes_well_is_no_alarm() -> None:
    assert _tell() == _tell(*GOOD) == []
    assert find_alarms(GOOD, _count_calls(written=9, rejected=2)) == []


def test_failures_are_told_with_what_to_do() -> None:
    """From a twentieth of all on, and a single one if there was no other. The usual one is first, and few of all."""
    for fields, reason, remedy in (
        ({"status": 400}, "failed with status 400", "its answer, which passes unchanged, says why"),
        ({"status": 401}, "failed with status 401", "upstream.api_key"),
        ({"status": 500}, "failed with status 500", "out of order"),
        ({"outcome": "broken"}, "broke off", "breaks its answers off"),
        ({"status": 400, "error": "context_length_exceeded"}, "got the error context_length_exceeded", "drop_tools"),
        ({"status": 502, "error": "upstream_unreachable"}, "got the error upstream_unreachable", "upstream.base_url"),
        ({"status": 418, "error": "odd"}, "got the error odd", "the answer says why"),
    ):
        bad = make_event("bad", **fields)
        (told,) = _tell(*GOOD, bad, bad, bad)
        assert told.startswith(f"3 of the newest 43 requests {reason}: ")
        assert remedy in told
        assert _tell(*GOOD, bad) == []
        assert _tell(bad)[0].startswith(f"1 of the newest 1 request {reason}")
    told = _tell(*(make_event(str(status), status=status) for status in (500, 401, 401, 404, 413, 413, 413)))
    assert [one.split(": ")[0].split()[-1] for one in told] == ["413", "401", "500"]


def test_summaries_that_fail_are_told_by_what_they_fail_of() -> None:
    (alarm,) = find_alarms([], _count_calls(written=3, rejected=2, timed_out=1))
    assert alarm.reason == "3 of 6 calls for summaries gave none (rejected 2, timed_out 1)"
    assert "summary.model" in alarm.remedy


def test_a_cut_that_moves_again_and_again_is_thrash() -> None:
    windows = [make_window(number) for number in range(1, 12)]
    moving = [make_event(str(number), session="s", window=one) for number, one in enumerate(windows)]
    (told,) = _tell(*moving)
    assert told.startswith("The cut moved in 10 of the newest 11 requests with a cut")
    assert _tell(*(make_event(str(number), session="s", window=windows[0]) for number in range(20))) == []
    assert _tell(*(make_event(str(n), session=str(n), window=one) for n, one in enumerate(windows))) == []
    assert _tell(*moving[:5]) == []


def test_a_head_that_fills_the_window_is_told_for_the_newest_prompt_of_each_model() -> None:
    full = {"limit_tokens": 1000, "original_sections": (640, 0, 0, 10, 5)}
    small = {"limit_tokens": 1000, "original_sections": (100, 0, 0, 10, 5)}
    told = _tell(
        make_event("1", model="a", **full), make_event("2", model="b", **full), make_event("3", model="b", **small)
    )
    assert [one.split(": ")[0] for one in told] == ["Instructions and tools fill 64% of the limit of a"]


def test_only_the_newest_requests_are_looked_at() -> None:
    with closing(table.open_in_memory()) as connection:
        texts.attach(connection, ":memory:")
        events = [make_event(f"{number:04}", at=float(number)) for number in range(NEWEST + 50)]
        table.add(connection, [table.Row.of(event, 1) for event in events], table.Bounds())
        assert [one.request_id for one in read_recent(connection, 100.0)] == [one.request_id for one in events[100:]]
        assert len(read_recent(connection, 0.0)) == NEWEST
