"""The queue of texts to write."""

import threading

from proxy.account.history import writer
from proxy.account.history.event import EventText
from proxy.account.history.texts import Texts, pack_text
from proxy.account.history.writer import Work, Writer


def fail(error):
    raise AssertionError from error


async def run(names: str, size_bytes: int = 1, max_bytes: int = 100) -> tuple[list[str], set[str]]:
    """Which texts are kept if all arrive at once, and the threads that wrote them."""
    texts, threads = Texts(10**6), set()
    queue = Writer(texts, max_bytes, fail)

    def write():
        threads.add(threading.current_thread().name)
        return pack_text("s", EventText())

    for name in names:
        texts.expect(name, "s")
        queue.add(Work(name, size_bytes, write))
    await queue.settle()
    return [name for name in names if texts.find(name)], threads


async def test_texts_are_written_in_a_thread():
    kept, threads = await run("abc")
    assert kept == list("abc")
    assert threading.main_thread().name not in threads


async def test_the_oldest_work_gives_way(monkeypatch):
    monkeypatch.setattr(writer, "MAX_WAITING", 2)
    assert (await run("abcde"))[0] == list("de")


async def test_what_waits_is_bounded_by_bytes_too():
    assert (await run("abcd", size_bytes=40))[0] == list("cd")
    assert (await run("a", size_bytes=101))[0] == []


async def test_a_failed_text_is_not_kept_and_the_next_one_is():
    texts = Texts(10**6)
    queue = Writer(texts, 100, fail)
    for name, packed in (("a", None), ("b", pack_text("s", EventText()))):
        texts.expect(name, "s")
        queue.add(Work(name, 1, lambda packed=packed: packed))
    await queue.settle()
    assert (texts.find("a"), texts.find("b") is None) == (None, False)


async def test_closing_drops_what_waits():
    texts = Texts(10**6)
    queue = Writer(texts, 100, fail)
    texts.expect("a", "s")
    queue.add(Work("a", 1, lambda: pack_text("s", EventText())))
    await queue.close()
    assert texts.find("a") is None
