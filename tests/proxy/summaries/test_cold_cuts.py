"""The store's records of cuts at a cold cache. The clock is the test's."""

import asyncio
from dataclasses import replace

import pytest
from support.stores import CountedStore, SlowStore

from trimtab.proxy.summaries import cold_cuts
from trimtab.proxy.summaries.cold_cuts import MAX_CUTS, TOUCH_SECONDS, ColdCuts, Session
from trimtab.rules.window.state import ColdCut

SESSION = Session("tenant", b"secret", "http://host/v1 m", bytes([1]) * 32)
FIRST, SECOND = bytes([2]) * 32, bytes([3]) * 32


async def test_a_cut_is_found_by_every_process_with_the_same_credential() -> None:
    """Another credential finds nothing, and neither does another model."""
    store = CountedStore()
    await ColdCuts(store).add(SESSION, FIRST, ColdCut.CUT)
    assert await ColdCuts(store).read(SESSION, is_followed=False) == {FIRST: ColdCut.CUT}
    for other in (replace(SESSION, secret=b"other"), replace(SESSION, model="n"), replace(SESSION, anchor=SECOND)):
        assert await ColdCuts(store).read(other, is_followed=False) == {}


async def test_of_two_writers_the_first_wins() -> None:
    """Both then know both cuts, in the same order; for one prefix there is one kind of cut."""
    store = CountedStore()
    left, right = ColdCuts(store), ColdCuts(store)
    assert await left.add(SESSION, FIRST, ColdCut.CUT) == {FIRST: ColdCut.CUT}
    assert await right.add(SESSION, FIRST, ColdCut.PRUNE) == {FIRST: ColdCut.CUT}
    assert list(await right.add(SESSION, SECOND, ColdCut.PRUNE)) == [FIRST, SECOND]
    assert await left.read(SESSION, is_followed=False) == {FIRST: ColdCut.CUT, SECOND: ColdCut.PRUNE}
    assert left.recall("tenant", SESSION.model) == right.recall("tenant", SESSION.model)
    assert left.recall("other", SESSION.model) == {}


async def test_a_process_that_serves_a_session_alone_reads_once() -> None:
    """A process that has not served the previous request reads one record more than there are cuts."""
    store = CountedStore()
    cuts = ColdCuts(store)
    await cuts.read(SESSION, is_followed=True)
    assert store.reads == 1
    for _ in range(9):
        await cuts.read(SESSION, is_followed=True)
    assert store.reads == 1
    await cuts.read(SESSION, is_followed=False)
    assert store.reads == 2


async def test_a_record_that_was_lost_is_written_again_while_the_session_goes_on() -> None:
    now = 0.0
    cuts = ColdCuts(CountedStore(), lambda: now)
    await cuts.add(SESSION, FIRST, ColdCut.CUT)
    cuts._store = store = CountedStore()
    now = TOUCH_SECONDS + 1
    assert await cuts.read(SESSION, is_followed=True) == {FIRST: ColdCut.CUT}
    assert await ColdCuts(store).read(SESSION, is_followed=False) == {FIRST: ColdCut.CUT}


async def test_the_cuts_of_one_beginning_are_bounded() -> None:
    cuts = ColdCuts(CountedStore())
    for number in range(MAX_CUTS + 1):
        known = await cuts.add(SESSION, number.to_bytes(32), ColdCut.CUT)
    assert len(known) == MAX_CUTS
    assert MAX_CUTS.to_bytes(32) not in known


async def test_the_time_of_an_answer_is_known_to_other_processes_if_it_is_shared() -> None:
    """The process itself forgets the previous time, because the session has gone on."""
    store, now = CountedStore(), 100.0
    cuts = ColdCuts(store, lambda: now)
    await cuts.note_time(SESSION, FIRST, bytes(32), shares=True)
    now = 110.0
    await cuts.note_time(SESSION, SECOND, FIRST, shares=False)
    assert cuts.recall_time(SESSION, FIRST) is None
    assert await cuts.find_time(SESSION, SECOND) == 110
    assert await ColdCuts(store).find_time(SESSION, FIRST) == 100
    assert await ColdCuts(store).find_time(SESSION, SECOND) is None


@pytest.mark.parametrize("text", ["", "zz cut", f"{FIRST.hex()} other", "nan nonsense"])
async def test_a_record_that_says_nothing_is_ignored(text: str) -> None:
    cuts = ColdCuts(CountedStore())
    await cuts._write(SESSION, SESSION.name_mark("cold cut", 0), text)
    await cuts._write(SESSION, SESSION.name_time(FIRST), text)
    assert await cuts.read(SESSION, is_followed=False) == {}
    assert await cuts.find_time(SESSION, FIRST) is None


@pytest.mark.parametrize("is_known", [False, True], ids=["unknown", "known"])
async def test_two_requests_of_a_session_at_once_lose_nothing(*, is_known: bool) -> None:
    """Each makes a mark of its own; both marks are in the store, and both are known, in the order of the store."""
    store = SlowStore()
    cuts = ColdCuts(store)
    if is_known:
        await cuts.add(SESSION, bytes([9]) * 32, ColdCut.CUT)
    await asyncio.gather(cuts.add(SESSION, FIRST, ColdCut.CUT), cuts.add(SESSION, SECOND, ColdCut.CUT))
    expected = await ColdCuts(store).read(SESSION, is_followed=False)
    assert {FIRST, SECOND} <= expected.keys()
    assert list(await cuts.read(SESSION, is_followed=True)) == list(expected)
    left, right = await asyncio.gather(*(ColdCuts(store).read(SESSION, is_followed=False) for _ in range(2)))
    assert left == right == expected


async def test_a_session_whose_marks_left_the_memory_does_not_count_as_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other clients have had marks since; the next request reads its own again."""
    monkeypatch.setattr(cold_cuts, "MAX_BYTES", 4000)
    marks = ColdCuts(SlowStore()).kept
    marks.note_heeded(SESSION, FIRST, await marks.add(SESSION, FIRST, ColdCut.NOW))
    assert marks.follow(SESSION, FIRST, FIRST)
    for number in range(20):
        other = replace(SESSION, tenant=f"tenant {number}")
        await marks.add(other, SECOND, ColdCut.NOW)
    assert not marks.recall(SESSION.tenant, SESSION.model)
    assert not marks.follow(SESSION, FIRST, SECOND)
    assert FIRST in await marks.read(SESSION, is_followed=False)
    assert FIRST in marks.recall(SESSION.tenant, SESSION.model)


async def test_a_request_heeds_the_marks_that_it_makes() -> None:
    marks = ColdCuts(SlowStore()).kept
    marks.note_added(SESSION, FIRST, [FIRST])
    assert not marks.follow(SESSION, FIRST, SECOND)
    marks.note_heeded(SESSION, FIRST, [])
    marks.note_added(SESSION, FIRST, await marks.add(SESSION, FIRST, ColdCut.NOW))
    assert marks.follow(SESSION, FIRST, SECOND)
    marks._of_clients.pop((SESSION.tenant, SESSION.model))
    assert not marks.follow(SESSION, SECOND, SECOND)


async def test_a_process_knows_whether_anybody_has_made_a_mark() -> None:
    """Without marks, nothing is looked up; a store of this process alone has only those that were made here."""
    marks = ColdCuts(CountedStore())
    assert (marks.is_used, marks.has_any) == (False, False)
    await marks.add(SESSION, FIRST, ColdCut.NOW)
    assert (marks.is_used, marks.has_any) == (True, True)
