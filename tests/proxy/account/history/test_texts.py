"""Texts are kept within a bound, and what was erased stays away."""

from proxy.account.history import texts
from proxy.account.history.event import EventText
from proxy.account.history.texts import Texts, pack_text, unpack_text
from rules.pipeline.changes import Change, Fate

TEXT = EventText(("told",), (Change(3, "tool", "read", Fate.PRUNED, ("prune",), 9, 2, "before é", "after"),), "sum")


def test_a_text_comes_back_as_it_was():
    packed = pack_text("s", TEXT)
    assert unpack_text(packed) == TEXT
    assert packed.sentences == ("told",)


def test_the_oldest_texts_give_way():
    size_bytes = pack_text("s", TEXT).size_bytes
    kept = Texts(3 * size_bytes)
    for name in "abcde":
        kept.expect(name, "s")
        kept.keep(name, pack_text("s", TEXT))
    assert [name for name in "abcde" if kept.find(name)] == list("cde")
    assert kept.has("s")
    kept.erase()
    assert not kept.has("s")
    assert kept._total_bytes == 0


def test_what_was_erased_while_it_was_written_is_not_kept():
    kept = Texts(10**6)
    for name, session in (("a", "s"), ("b", "t")):
        kept.expect(name, session)
    kept.erase("s")
    for name, session in (("a", "s"), ("b", "t"), ("c", "t")):
        kept.keep(name, pack_text(session, TEXT))
    assert [name for name in "abc" if kept.find(name)] == ["b"]


def test_only_so_many_texts_are_expected(monkeypatch):
    monkeypatch.setattr(texts, "MAX_EXPECTED", 2)
    kept = Texts(10**6)
    for name in "abc":
        kept.expect(name, "s")
    assert list(kept._expected) == ["b", "c"]
