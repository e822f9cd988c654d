"""The history keeps the newest events, in the place of the store."""

import asyncio
import sqlite3
import threading
import time
from functools import partial

import pytest
from support.events import make_event, read_events

from trimtab.proxy.account.history import kept
from trimtab.proxy.account.history.kept import History, Places, SharedLog, Text, _InMemory
from trimtab.proxy.account.history.sessions import find_named
from trimtab.proxy.account.history.table import Bounds, sum_steps
from trimtab.proxy.account.history.texts import Title, attach, find_text, pack_text, read_notes
from trimtab.proxy.account.outcome import OutcomeText
from trimtab.proxy.store.sqlite import DamagedError
from trimtab.proxy.store.store import StoreError
from trimtab.proxy.tasks import Tasks


async def names(history) -> list[str]:
    return [event.request_id for event in await read_events(history)]


@pytest.fixture(params=["memory", "file"])
async def history(request, tmp_path, log):
    """A history of one process."""
    files = [tmp_path / "folder" / "events"] if request.param == "file" else []
    found = History(keeps_text=True, places=Places(files), log=log)
    yield found
    await found.close()


def count_rows(path) -> int:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT COUNT(*) FROM events").fetchone()[0]
    finally:
        connection.close()


async def test_a_file_outlives_the_process(tmp_path):
    places = Places([tmp_path / "events"])
    for number in range(3):
        history = History(places=places)
        history.add(make_event(str(number)))
        await history.close()
    history = History(places=places)
    assert await names(history) == ["0", "1", "2"]
    assert (tmp_path / "events").stat().st_mode & 0o777 == 0o600
    await history.close()


async def test_workers_and_replicas_see_what_each_of_them_did(twins):
    one, two = twins
    now = time.time() // 60 * 60
    one.add(make_event("a", session="s", at=now - 60))
    one.add(make_event("b", session="t", at=now - 50))
    await one.flush()
    two.add(make_event("c", session="s", at=now - 40))
    for each in (two, one):
        assert await names(each) == ["a", "b", "c"]
        sums = await each.read(partial(sum_steps, start=int(now) - 60, stop=int(now), step_seconds=60))
        assert {name: figures[0] for _, kind, name, figures in sums if not kind} == {"": 3}
    assert await one.erase("s")
    for each in twins:
        assert await names(each) == ["b"]
    two.add(make_event("d", session="s", at=now + 100))
    await two.flush()
    assert await names(one) == ["b", "d"]


async def test_a_place_that_cannot_be_used_is_passed_over(tmp_path, log):
    faults = []
    (tmp_path / "file").touch()
    history = History(places=Places([tmp_path / "file" / "events"]), log=log, on_fault=faults.append)
    history.add(make_event())
    assert await names(history) == ["a"]
    assert faults == ["sqlite"]
    await history.close()


@pytest.mark.parametrize(("is_in_use", "has_file"), [(False, True), (True, False), (True, True)])
async def test_damaged_texts_begin_again(is_in_use, has_file, tmp_path, log):
    place, files = tmp_path / "texts", [tmp_path / "events"] if has_file else []
    history = History(keeps_text=True, places=Places(files, str(place)), log=log, on_fault=pytest.fail)
    if is_in_use:
        history.add(make_event("1", session="s"))
        assert await write_texts(history, "1") == ["1"]
        await history.read(lambda connection: connection.execute("PRAGMA private.wal_checkpoint(TRUNCATE)").fetchall())
    place.write_bytes(b"x" * 8192)
    history.add(make_event("2", session="s"))
    assert await write_texts(history, "2") == ["2"]
    assert await names(history) == (["1", "2"] if is_in_use else ["2"])
    await history.close()


def test_texts_that_turn_out_damaged_begin_again_beside_rows_in_memory(tmp_path):
    """The work is done once more, in texts that are new."""
    memory, faults = _InMemory(partial(attach, place=str(tmp_path / "texts"))), [DamagedError("malformed")]

    def work(connection):
        if faults:
            raise faults.pop()
        return [name for _, name, _ in connection.execute("PRAGMA database_list")]

    assert memory.use(work) == ["main", "private"]
    memory.close()


async def test_another_programs_file_is_left_alone(tmp_path, log):
    path = tmp_path / "events"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    before, history = path.read_bytes(), History(places=Places([path]), log=log)
    history.add(make_event())
    assert await names(history) == ["a"]
    await history.close()
    assert path.read_bytes() == before


async def test_what_cannot_be_written_now_is_written_later(tmp_path, log):
    faults, path = [], tmp_path / "events"
    history = History(places=Places([path]), log=log, on_fault=faults.append)
    await history.read(lambda _: None)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    history.add(make_event())
    await history.flush()
    assert faults == ["sqlite"]
    other.execute("ROLLBACK")
    other.close()
    assert await names(history) == ["a"]
    await history.close()


async def test_a_request_that_is_no_json_is_a_fault_and_costs_no_other(history):
    faults = []
    history._on_error = faults.append
    for event in (make_event("1"), make_event("2", reason="\ud800"), make_event("3")):
        history.add(event)
    assert await names(history) == ["1", "3"]
    assert [type(fault) for fault in faults] == [UnicodeEncodeError]


async def test_what_cannot_be_erased_everywhere_can_be_tried_again(log):
    places, faults = Places(log=SharedLog("redis://127.0.0.1:9/0", ttl_seconds=60)), []
    history = History(places=places, log=log, keeps_text=True, on_fault=faults.append)
    history.add(make_event("1", session="s"))
    assert await write_texts(history, "1") == ["1"]
    with pytest.raises(StoreError):
        await history.erase("s")
    assert await names(history) == ["1"]
    assert await history.read(partial(find_text, request_id="1")) is None
    assert set(faults) == {"redis"}
    await history.close()


async def test_a_reader_that_leaves_takes_nothing_along(history):
    """The rows that wait are written although nobody reads them now."""
    assert await names(history) == []
    is_free, tasks = threading.Event(), Tasks(lambda _: None)
    working = tasks.start(history._use(lambda _: is_free.wait(30)))
    history.add(make_event("1"))
    reading = tasks.start(names(history))
    await asyncio.sleep(0.02)
    reading.cancel()
    await asyncio.sleep(0)
    is_free.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await working
    assert await names(history) == ["1"]


async def write_texts(history, wanted: str, size_bytes: int = 1, write=lambda: pack_text(OutcomeText())) -> list[str]:
    """Which texts are kept if all arrive at once."""
    for name in wanted:
        history.add_text(Text(name, "s", 1000.0, size_bytes, write))
    await history.settle()
    return [name for name in wanted if await history.read(partial(find_text, request_id=name))]


async def test_what_waits_is_bounded(log, monkeypatch):
    """The oldest give way. Texts are bounded by bytes, too."""
    monkeypatch.setattr(kept, "MAX_WAITING", 3)
    monkeypatch.setattr(kept, "MAX_TEXTS_WAITING", 2)
    history = History(keeps_text=True, places=Places(bounds=Bounds(text_bytes=10_000)), log=log)
    for number in range(5):
        history.add(make_event(str(number)))
    assert len(history._rows) == 3
    assert await write_texts(history, "abcde") == list("de")
    assert await write_texts(history, "fg", size_bytes=3000) == ["g"]
    assert await write_texts(history, "h", size_bytes=5001) == []
    await history.close()


async def test_texts_are_written_in_a_thread(history):
    threads, results = set(), [pack_text(OutcomeText()), None, pack_text(OutcomeText())]

    def write():
        threads.add(threading.current_thread().name)
        return results.pop(0)

    def write_late():
        history.keep_text(keeps_text=False)
        return pack_text(OutcomeText())

    assert await write_texts(history, "abc", write=write) == ["a", "c"]
    assert threading.main_thread().name not in threads
    assert await write_texts(history, "d", write=write_late) == []


async def test_what_a_session_is_called_is_written_without_its_words_if_texts_are_not_kept(history):
    history.add(make_event(session="s"))
    for keeps, found in ((True, Title("words", "header")), (False, Title("", "header"))):
        history.keep_text(keeps_text=keeps)
        history.add_text(Text("", "s", 1000.0, 1, lambda: Title("words", "header")))
        assert history.titled == {"s"}
        await history.settle()
        session = await history.read(partial(find_named, name="s"))
        assert Title(session.title, session.header) == found
    history.add_text(Text("a", "s", 1000.0, 1, lambda: pack_text(OutcomeText())))
    assert await history.erase("s")  # with what waits to be written
    await history.settle()
    assert (history.titled, await names(history)) == (set(), [])
    assert await history.read(partial(find_text, request_id="a")) is None
    assert not await history.erase("s")


async def test_a_title_that_gives_way_is_wanted_again(history, monkeypatch):
    monkeypatch.setattr(kept, "MAX_TEXTS_WAITING", 2)
    for name in "abc":
        history.add_text(Text("", name, 1000.0, 1, lambda: Title("", "")))
    assert history.titled == {"b", "c"}
    monkeypatch.setattr(kept, "MAX_TITLES", 2)
    history.add_text(Text("", "d", 1000.0, 1, lambda: Title("", "")))
    assert history.titled == {"d"}


@pytest.mark.parametrize("is_cleared", [False, True])
async def test_what_is_switched_off_keeps_nothing(is_cleared, history):
    ending = history.streams.ending
    history.add(make_event("1", session="s"))
    await write_texts(history, "1")
    history.add(make_event("2"))
    if is_cleared:
        history.clear()
        assert await names(history) == []
        assert await history.read(partial(sum_steps, start=0, stop=6000, step_seconds=60)) == []
        assert ending.is_set()
        assert not history.streams.ending.is_set()
    else:
        history.keep_text(keeps_text=False)
        assert await names(history) == ["1", "2"]
    assert await history.read(partial(find_text, request_id="1")) is None


async def test_who_switches_off_leaves_the_rows_of_others(tmp_path, log):
    """They share a file of the store. The texts are only its own."""
    one, other = (History(keeps_text=True, places=Places([tmp_path / "a"], is_shared=True), log=log) for _ in range(2))
    other.add(make_event("1", session="s"))
    assert await names(other) == ["1"]
    one.add(make_event("2", session="s"))
    assert await write_texts(one, "2") == ["2"]
    one.add(make_event("3"))
    one.clear()
    assert await names(other) == ["1", "2"]
    assert await one.read(partial(find_text, request_id="2")) is None
    for each in (one, other):
        await each.close()


async def test_who_switches_off_forgets_its_copy_of_the_log_of_replicas(redis_url, log):
    one, other = (History(places=Places(log=SharedLog(redis_url, ttl_seconds=60)), log=log) for _ in range(2))
    one.add(make_event("1"))
    assert await names(one) == await names(other) == ["1"]
    one.is_on = False
    one.clear()
    assert (await names(one), await names(other)) == ([], ["1"])
    one.is_on = True
    assert await names(one) == ["1"]
    for each in (one, other):
        await each.close()


async def test_rows_are_written_soon_although_nobody_reads_and_notes_go_to_the_other_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "FLUSH_SECONDS", 0.01)
    path = tmp_path / "events"
    history = History(places=Places([path], texts=str(tmp_path / "texts"), worker=2, workers=2))
    history.notes = lambda: b"[]"
    history.add(make_event())
    while history._is_due:  # noqa: ASYNC110 - a timer ends it
        await asyncio.sleep(0)
    await history._tasks.settle()
    assert count_rows(path) == 1
    assert await history.read(partial(read_notes, but=1)) == [b"[]"]
    await history.close()


async def test_a_file_that_another_process_holds_just_now_is_waited_for(tmp_path, log):
    """Or else workers that start together would not share it."""
    path = tmp_path / "events"
    holder = sqlite3.connect(tmp_path / "events.lock", isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(1.3, holder.rollback)
    release.start()
    history = History(places=Places([path]), log=log, on_fault=pytest.fail)
    history.add(make_event())
    await history.close()
    release.join()
    holder.close()
    assert count_rows(path) == 1
