"""What the pages show of a request, a session, a minute and a text."""

import asyncio
import sys
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.client import CHAT
from support.events import make_event
from support.recordings import keep, make_recording
from support.steps import count_steps

from trimtab.proxy.account.books import NO_CLIENT, Place, Sums
from trimtab.proxy.account.history.sessions import Session
from trimtab.proxy.account.history.table import FIGURES, Turn
from trimtab.proxy.account.outcome import Window
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import Config
from trimtab.proxy.server.admin.shapes import (
    Curve,
    diff_lines,
    read_clients,
    read_models,
    read_totals,
    shape_days,
    shape_request,
    shape_session,
    shape_timeline,
    tell_why,
)
from trimtab.proxy.tasks import Tasks
from trimtab.proxy.telemetry.ledger import IS_CUT, TOO_SHORT, Entry
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.proxy.telemetry.savings import Samples


def test_money_is_in_dollars_and_sections_have_names():
    event = make_event(cost=2_500_000_000, without_cost=None, sent_sections=(1, 2, 3, 4, 5))
    shaped = shape_request(Turn(event, 2, cut_moved=True, cut_tokens=7, cut_cost=1_000_000))
    assert (shaped["cost_usd"], shaped["without_usd"], shaped["cut_cost_usd"]) == (2.5, None, 0.001)
    assert shaped["sent_sections"] == {"system": 1, "summary": 2, "memory": 3, "recent": 4, "current": 5}
    assert shaped["original_sections"] == {}
    assert (shaped["cut_moved"], shaped["cut_tokens"], shaped["worker"]) == (True, 7, 2)
    assert not {"cost", "without_cost"} & shaped.keys()


def test_without_kept_text_the_story_comes_from_the_decisions():
    decisions = (
        Entry("cold_cache", "cut early", 5, 5, 0, 0, 1, 90),
        Entry("cold_cache", "cut early", 5, 5, 0, 0, 2, 90),
    )
    told = ["cold_cache: cut early.", "In the second attempt: cold_cache: cut early."]
    assert shape_request(Turn(make_event(decisions=decisions), 1))["story"] == told
    assert shape_request(Turn(make_event(decisions=decisions), 1, ["told"]))["story"] == ["told"]


def test_a_session_is_shown_with_its_sums_and_its_newest_request():
    of_last = {"model": "m", "client": "ann", "messages": 5, "original_tokens": 8, "sent_tokens": 7, "limit_tokens": 6}
    last = make_event(at=9.0, outcome="compacted", summary_instead="late", **of_last)
    session = Session("s", last, 1.0, 2, 3, 5 * 10**8, 10**9, 25 * 10**7, 4, has_text=True, title="t", header="h")
    named = {"id": "s", "title": "t", "header": "h", "first_at": 1.0, "last_at": 9.0, "last_outcome": "compacted"}
    money = {"cost_usd": 0.75, "without_usd": 1.0, "summary_usd": 0.25}
    sums = {"requests": 2, "saved_tokens": 3, "cuts": 4, "has_text": True, "digest_instead": "late"}
    assert shape_session(session) == named | of_last | money | sums


def test_the_cost_of_a_session_includes_its_summaries():
    """Without a known price of a request, the cost is not known."""
    amounts = []
    for cost, summary_cost in ((None, 25 * 10**7), (None, 0), (5 * 10**8, 0)):
        shown = shape_session(Session("s", make_event(at=9.0), 1.0, 2, 3, cost, None, summary_cost, 1, has_text=True))
        amounts.append((shown["cost_usd"], shown["summary_usd"], shown["without_usd"]))
    assert amounts == [(None, 0.25, None), (None, None, None), (0.5, 0.0, None)]


def figures(**some):
    return list((dict.fromkeys(FIGURES, 0) | some).values())


def test_buckets_have_no_holes():
    sums = [
        (720, "", "", figures(requests=3, sent_tokens=9, cached_tokens=2, priced=1, cost=5, without_cost=9)),
        (720, "models", "m", figures(requests=3, sent_tokens=9, cached_tokens=2)),
    ]
    timeline = shape_timeline(sums, 600, 960, 120)
    assert timeline["step_seconds"] == 120
    assert [(bucket["at"], bucket["requests"]) for bucket in timeline["buckets"]] == [(600, 0), (720, 3), (840, 0)]
    empty, bucket, _ = timeline["buckets"]
    assert (bucket["cached_tokens"], bucket["fail_opens"], bucket["clients"]) == (2, 0, {})
    assert (bucket["cost_usd"], bucket["without_usd"], bucket["saved_usd"]) == (5e-9, 9e-9, 4e-9)
    unknown = {"cost_usd": None, "without_usd": None, "saved_usd": None}
    assert bucket["models"] == {"m": {"requests": 3, "failed": 0, "original_tokens": 0, "sent_tokens": 9, **unknown}}
    assert (empty["cost_usd"], empty["saved_usd"], empty["requests"]) == (0.0, 0.0, 0)


def test_a_day_of_the_books_has_their_sums_and_no_failures() -> None:
    sums = Sums(requests=2, original_tokens=9, sent_tokens=8, cached_tokens=7, unpriced_requests=2)
    (bucket,) = shape_days([(Place("1970-01-02", "m", NO_CLIENT), sums)], "1970-01-02", "1970-01-02")["buckets"]
    figures = {"requests": 2, "original_tokens": 9, "sent_tokens": 8, "cached_tokens": 7, "fail_opens": 0, "failed": 0}
    money = dict.fromkeys(("cost_usd", "without_usd", "saved_usd"))
    of_model = {name: figures[name] for name in ("requests", "original_tokens", "sent_tokens", "failed")} | money
    assert bucket == {"at": 86_400.0, **figures, **money, "models": {"m": of_model}, "clients": {}}


@pytest.mark.parametrize(("unpriced", "cost_usd"), [(0, 0.0), (1, None)])
def test_a_summary_with_a_price_makes_the_cost_of_a_day_known(unpriced: int, cost_usd: float | None) -> None:
    sums = Sums(requests=1, unpriced_requests=1, summaries=1, unpriced_summaries=unpriced)
    (bucket,) = shape_days([(Place("1970-01-02", "m", NO_CLIENT), sums)], "1970-01-02", "1970-01-02")["buckets"]
    assert bucket["cost_usd"] == cost_usd


TEXTS = st.lists(st.sampled_from(["a", "b", "c", "", "x y"]), max_size=12).map("\n".join)


@given(before=TEXTS, after=TEXTS)
def test_both_texts_can_be_read_from_the_lines(before, after):
    lines = diff_lines(before, after)
    assert [line["text"] for line in lines if line["kind"] != "added"] == before.splitlines()
    assert [line["text"] for line in lines if line["kind"] != "removed"] == after.splitlines()


def test_what_stays_is_the_same():
    lines = diff_lines("one\ntwo\nthree", "one\n2\nthree")
    assert [(line["kind"], line["text"]) for line in lines] == [
        ("same", "one"), ("removed", "two"), ("added", "2"), ("same", "three"),
    ]  # fmt: skip


def test_a_hostile_pair_takes_linear_work():
    """Each of thousands of equal lines would be compared with each other one."""
    before, after = "x\ny\n" * 2000, "y\nx\n" * 2000
    assert len(diff_lines(before, after)) == 8000
    assert count_steps(lambda: diff_lines(before, after)) < 10 * 8000


@pytest.mark.parametrize(
    ("event", "uncut_tokens", "why"),
    [
        ({}, 1200, "about 1,200 tokens did not fit the limit of 1,000"),
        ({}, 810, "with about 810 tokens it had reached high water (800), and a cut paid"),
        ({}, 300, "a limit of the configuration was reached"),
        ({}, None, ""),
        ({"retry": "recovered"}, 300, "the upstream refused the prompt as too long"),
        ({"decisions": (("compact_now", IS_CUT),)}, 1200, "somebody asked for it"),
        ({"decisions": (("compact_now", TOO_SHORT),)}, 1200, "about 1,200 tokens did not fit the limit of 1,000"),
        (
            {"decisions": (("cold_cache", "the upstream's cache was cold after 400 s"),)},
            300,
            "the upstream's cache was cold after 400 s, so a cut broke no cache",
        ),
    ],
)
def test_why_a_cut_moved_is_told_in_words(event, uncut_tokens, why):
    """What was asked for, and what the upstream did, comes before what the sizes say."""
    decisions = tuple(Entry(rule, reason, 0, 0, 0, 0, 1, 1000) for rule, reason in event.pop("decisions", ()))
    told = make_event(limit_tokens=1000, window=Window(800, 300), decisions=decisions, **event)
    assert tell_why(told, uncut_tokens) == why


def make_samples() -> Samples:
    metrics = Metrics()
    for model, status, outcome in (("a", "200", "compacted"), ("a", "200", "broken"), ("b", "400", "refused")):
        metrics.requests[model, "chat", status, outcome] += 1
    metrics.answered["a", "compacted"] += 1
    for result in ("recovered", "refused", "hopeless"):
        metrics.overflow_retries["a", result] += 1
    results = ("made", "prefetched", "hit", "hit", "hit", "joined", "rejected", "failed", "failed", "digest")
    for result in results:
        metrics.summaries["a", result] += 1
    for result in ("written", "written", "rejected", "timed_out", "rejected", "refused"):
        metrics.summary_seconds.observe(("a", result), 1.0)
    for kind in ("prune", "prune", "summarise"):
        metrics.cuts["a", kind] += 1
    metrics.prefix_kept.observe("a", 0.5)
    metrics.prefix_kept.observe("b", 1.0)
    metrics.cost_usd["a", "fresh"] += 2
    metrics.cost_usd["a", "summary"] += 1
    metrics.cost_without_usd["a"] += 7
    for stage, tokens in (("original", 20), ("sent", 9)):
        metrics.prompt_tokens["a", stage] += tokens
    metrics.tokens_saved["a", "prune"] += 12
    metrics.tokens_added["a", "pairing"] += 1
    metrics.completion_tokens["a", "upstream"] += 3
    metrics.cached_prompt_tokens["b"] += 4
    metrics.cache_reported_tokens["b"] += 16
    metrics.cache_write_tokens["b"] += 6
    metrics.summary_tokens["a", "prompt"] += 30
    metrics.summary_tokens["a", "completion"] += 7
    metrics.estimate_error.observe("a", 1.5)
    metrics.sessions_without_summaries["a", "late"] += 8
    metrics.fail_open["plan"] += 3
    metrics.show_in_flight(2)
    metrics.client_tokens["alice", "sent"] += 5
    metrics.client_requests["alice", "compacted"] += 1
    return Samples.of(metrics.collect_all())


def test_totals_add_up_all_models():
    """As summaries count those that were written; of the calls for them those have failed that wrote none."""
    requests = {"requests": 3, "answered": 1, "failed": 2, "fail_opens": 3, "in_flight": 2}
    refused = {"overflow_refusals": 3, "recoveries": 1}
    tokens = {"original_tokens": 20, "sent_tokens": 9, "saved_tokens": 12, "added_tokens": 1, "completion_tokens": 3}
    cached = {"cached_tokens": 4, "written_tokens": 6, "cached_share": 0.25, "prefix_kept": 0.75}
    calls = {"summary_prompt_tokens": 30, "summary_completion_tokens": 7, "summary_calls": 6, "summaries_failed": 4}
    summaries = {"summaries": 2, "summaries_reused": 4, "digests": 1, "sessions_without_summaries": 8}
    cuts = {"cuts_pruned": 2, "cuts_summarised": 1, "cuts_digested": 0}
    money = {"cost_usd": 3, "without_usd": 7, "summary_usd": 1, "net_usd": 4, "estimate_error": 1.5}
    assert read_totals(make_samples()) == requests | refused | tokens | cached | calls | summaries | cuts | money


def test_each_model_and_client_has_its_own_and_what_has_no_model_is_null():
    first, second = read_models(make_samples())
    assert (first["name"], first["requests"], first["net_usd"], first["prefix_kept"]) == ("a", 2, 4, 0.5)
    assert (second["name"], second["requests"], second["net_usd"]) == ("b", 1, None)
    assert first["fail_opens"] is first["in_flight"] is first["cached_share"] is None
    (client,) = read_clients(make_samples())
    assert client == {"name": "alice", "requests": 1, "original_tokens": 0, "sent_tokens": 5, "completion_tokens": 0}


POLICIES = """
upstreams: {other: {base_url: "http://127.0.0.1:9/v1"}}
defaults: {upstream: other, economy: frugal, summary: {upstream: other, min_steps: 3}, tools: {"run*": {exclude: true}}}
models: [{match: "q*", high_water: 0.5}]
"""


def _configure(folder: Path) -> Config:
    return load_config(POLICIES, settings=(f"record.dir={folder}",), environment={})


def _make_tasks() -> Tasks:
    def fail(error: BaseException) -> None:
        raise error

    return Tasks(fail)


async def test_nothing_is_computed_without_recordings() -> None:
    assert Curve().show(load_config("", environment={}), _make_tasks()) == {"state": "off"}
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_recordings_are_replayed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the policies of the configuration; the result is kept, also that the program has failed."""
    background, config = _make_tasks(), _configure(tmp_path)
    keep(tmp_path, make_recording("ab" * 12, body=orjson.dumps(CHAT).decode()))
    for program, state, requests, names in (
        (sys.executable, "ready", 1, ["recorded", "careful", "balanced", "frugal"]),
        ("/bin/false", "failed", 0, []),
    ):
        monkeypatch.setattr(sys, "executable", program)
        curve = Curve()
        for _ in range(2):
            assert curve.show(config, background) == {"state": "running"}
        await background.settle()
        shown = curve.show(config, background)
        assert (shown["state"], shown["requests"]) == (state, requests)
        assert [point["name"] for point in shown["points"]][:4] == names
        assert curve.show(config, background) is shown


async def test_the_computation_ends_with_the_proxy(tmp_path: Path) -> None:
    keep(tmp_path, make_recording("ab" * 12, body=orjson.dumps(CHAT).decode()))
    curve, background = Curve(), _make_tasks()
    assert curve.show(_configure(tmp_path), background) == {"state": "running"}
    await asyncio.sleep(0)
    await background.close()
    assert background.is_idle
    assert asyncio.all_tasks() == {asyncio.current_task()}
