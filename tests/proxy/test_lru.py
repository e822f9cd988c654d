"""A mapping bounded by bytes, and shares of one bound."""

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.lru import ENTRY_BYTES, BytesLRU

MAX_BYTES = 4 * (ENTRY_BYTES + 100)


def _make(max_bytes: int = MAX_BYTES) -> BytesLRU[str, str]:
    return BytesLRU(max_bytes, lambda _, value: len(value))


def test_a_value_is_there_until_it_must_go() -> None:
    """A value that was kept is found. A missing one gives None."""
    lru = _make()
    lru["a"] = "1"

    assert (lru.get("a"), lru.get("b"), lru.items()) == ("1", None, [("a", "1")])


def test_the_least_recently_used_goes_first() -> None:
    """Reading counts as use, so the entry that was read longest ago is dropped."""
    lru = _make()
    for key in "abcd":
        lru[key] = key * 100
    lru.get("a")
    lru["e"] = "e" * 100

    assert [lru.get(key) for key in "abcde"] == ["a" * 100, None, "c" * 100, "d" * 100, "e" * 100]


def test_an_entry_may_fill_the_whole_and_no_more() -> None:
    """An entry of exactly `max_bytes` is kept. With one byte more it is not kept, and nothing is dropped for it."""
    lru = _make()
    lru["a"] = "x" * (MAX_BYTES - ENTRY_BYTES)
    lru["b"] = "x" * (MAX_BYTES - ENTRY_BYTES + 1)

    assert dict(lru.items()).keys() == {"a"}


def test_replacing_a_value_updates_the_size() -> None:
    """A hundred replacements take the space of one."""
    lru = _make()
    lru["a"] = "1"
    for _ in range(100):
        lru["b"] = "x" * 300
    lru["b"] = "y"

    assert (lru.get("a"), lru.get("b"), lru.total_bytes) == ("1", "y", 2 * (ENTRY_BYTES + 1))


def test_an_oversized_value_does_not_leave_the_old_one_under_its_key() -> None:
    """A mapping may forget a value, but must not return one that was replaced."""
    lru = _make()
    lru["a"] = "old"
    lru["a"] = "x" * MAX_BYTES

    assert lru.get("a") is None


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 1000) | st.none()), max_size=40))
def test_it_behaves_as_the_plain_model(steps: list[tuple[str, int | None]]) -> None:
    """For any sequence of writes (a size) and reads (None), it keeps what a simple LRU would keep, within its bound."""
    lru = _make()
    model: OrderedDict[str, str] = OrderedDict()
    for key, size in steps:
        if size is None:
            assert lru.get(key) == model.get(key)
            if key in model:
                model.move_to_end(key)
        else:
            lru[key] = "x" * size
            model.pop(key, None)
            model[key] = "x" * size
            if size + ENTRY_BYTES > MAX_BYTES:
                del model[key]
            while sum(len(value) + ENTRY_BYTES for value in model.values()) > MAX_BYTES:
                model.popitem(last=False)
    assert lru.items() == list(model.items())
    assert lru.total_bytes == sum(len(value) + ENTRY_BYTES for value in model.values())


def test_the_first_key_that_has_a_value_gives_it_up() -> None:
    """One search tries the keys in their order. The other entries stay."""
    lru = _make()
    for key in "abc":
        lru[key] = key.upper()

    assert [lru.pop_first(keys) for keys in ("xbc", "xbc", "xbc", "")] == ["B", "C", None, None]
    assert (lru.items(), lru.total_bytes) == ([("a", "A")], ENTRY_BYTES + 1)


def test_the_items_are_told_the_least_recently_used_first() -> None:
    """Listing the entries is no use of them. The list does not change with the mapping."""
    lru = _make()
    assert lru.items() == []
    for key in "abc":
        lru[key] = key.upper()
    lru.get("a")
    items = lru.items()
    assert items == lru.items() == [("b", "B"), ("c", "C"), ("a", "A")]
    for key, _ in items:
        lru.pop(key)

    assert (len(items), lru.items()) == (3, [])


def test_threads_do_not_spoil_the_count_of_bytes() -> None:
    """Many threads write and read at once. Afterwards the sum is that of the kept entries, and within the bound."""
    lru = _make()
    barrier = threading.Barrier(4)

    def work(seed: int) -> None:
        barrier.wait()
        for number in range(2000):
            key = str((number * (seed + 1)) % 9)
            lru[key] = "x" * (number % 200)
            lru.get(key)
            assert len({key for key, _ in lru.items()}) <= 9

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert lru.total_bytes == sum(len(value) + ENTRY_BYTES for _, value in lru.items())
    assert lru.total_bytes <= MAX_BYTES


def test_what_one_share_keeps_no_other_finds() -> None:
    """Another share does not count it either. The bound is on all shares together."""
    lru = _make()
    one, two = lru.share(), lru.share()
    one["a"] = "1"
    assert (two.get("a"), "a" in two, lru.get("a"), two.find_missing("a"), two.pop("a")) == (
        None,
        False,
        None,
        ["a"],
        None,
    )
    two["a"] = "22"
    assert (one.get("a"), two.get("a")) == ("1", "22")
    assert (one.total_bytes, two.total_bytes, lru.total_bytes) == (ENTRY_BYTES + 1, ENTRY_BYTES + 2, 0)


def test_whoever_holds_most_forgets_first() -> None:
    """A flood drops its own entries, and not the few of another share, however old these are."""
    lru = _make(100 * (ENTRY_BYTES + 100))
    honest, flood = lru.share(), lru.share()
    for number in range(20):
        honest[str(number)] = "x" * 100
    for number in range(1000):
        flood[str(number)] = "x" * 100
    assert len(honest.items()) == 20
    assert 70 < len(flood.items()) <= 80
    assert flood.items()[-1][0] == "999"


def test_only_of_several_shares_the_largest_drops_more_than_it_must() -> None:
    """A 64th of the bound, which is two entries here. The only share drops one for one."""
    for others, dropped in ((0, 1), (1, 2)):
        lru = _make(100 * (ENTRY_BYTES + 100))
        for number in range(others):
            lru.share()[str(number)] = "x" * 100
        for number in range(101 - others):
            lru[str(number)] = "x" * 100
        assert [key for key, _ in lru.items()] == [str(number) for number in range(dropped, 101 - others)]


def test_a_closed_share_keeps_nothing_and_frees_all() -> None:
    """The other shares do not change."""
    lru = _make()
    one, two = lru.share(), lru.share()
    one["a"], two["a"] = "1", "2"
    one.close()
    one["b"] = "1"
    assert (one.items(), one.total_bytes, two.items()) == ([], 0, [("a", "2")])
    for key in "bcd":
        two[key] = key * 100
    assert len(two.items()) == 4


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abcdef"), st.integers(0, 1000)), max_size=60))
def test_shares_hold_no_more_than_the_bound(steps: list[tuple[int, str, int]]) -> None:
    """The law holds for all writes. A share that holds less than its part of the bound loses nothing."""
    lru = _make()
    shares = [lru.share() for _ in range(4)]
    for number, key, size in steps:
        before = [share.items() for share in shares]
        shares[number][key] = "x" * size
        assert sum(share.total_bytes for share in shares) <= MAX_BYTES
        assert all(
            share.items() == items
            for share, items in zip(shares, before, strict=True)
            if share is not shares[number] and sum(len(value) + ENTRY_BYTES for _, value in items) <= MAX_BYTES // 4
        )


def test_what_comes_once_does_not_drive_out_what_is_used() -> None:
    """Entries that were never read may take only a part of the space."""
    lru: BytesLRU[str, str] = BytesLRU(MAX_BYTES, lambda _, value: len(value), unused_share=0.6)
    for key in "ab":
        lru[key] = key * 100
        lru.get(key)
    for key in "cdef":
        lru[key] = key * 100
    assert [key for key, _ in lru.items()] == ["e", "f", "a", "b"]
    lru.get("e")
    lru["g"] = "g" * 100
    assert [key for key, _ in lru.items()] == ["f", "g", "b", "e"]
    lru["b"] = "new"
    lru["h"] = "h" * 100
    assert [key for key, _ in lru.items()] == ["g", "h", "e", "b"]


def test_the_newest_entry_has_room_though_nobody_has_asked_for_it() -> None:
    lru: BytesLRU[str, str] = BytesLRU(MAX_BYTES, lambda _, value: len(value), unused_share=0.01)
    for key in "abc":
        lru[key] = key * 100
        assert lru.items() == [(key, key * 100)]
    assert lru.unused_bytes == lru.total_bytes == ENTRY_BYTES + 100


def test_what_was_used_under_another_key_counts_as_used() -> None:
    lru: BytesLRU[str, str] = BytesLRU(
        MAX_BYTES, lambda _, value: len(value), unused_share=0.3, is_used=lambda value: value.startswith("old")
    )
    for key in "abc":
        lru[key] = f"old {key}"
    for key in "defg":
        lru[key] = "x" * 100
    assert {"a", "b", "c"} < {key for key, _ in lru.items()}


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from([0, 1]), st.integers(-1, 300)), max_size=40))
def test_sums_are_those_of_the_entries(steps: list[tuple[str, int, int]]) -> None:
    """They cover all shares, whatever was read, written, taken or forgotten."""
    first: BytesLRU[str, str] = BytesLRU(MAX_BYTES, lambda _, value: len(value), unused_share=0.25)
    shares = (first, first.share())
    for key, number, size in steps:
        lru = shares[number]
        if size < 0:
            lru.get(key)
        elif size % 7 == 0:
            lru.pop(key)
        else:
            lru[key] = "x" * size
        for share in shares:
            assert share.total_bytes == sum(len(value) + ENTRY_BYTES for _, value in share.items())
            assert 0 <= share.unused_bytes <= share.total_bytes
        assert sum(share.total_bytes for share in shares) <= MAX_BYTES


def test_what_is_new_finds_room_though_all_of_it_is_used() -> None:
    """Otherwise no new entry would ever be read a second time once the space was full."""
    lru: BytesLRU[str, str] = BytesLRU(MAX_BYTES, lambda _, value: len(value), unused_share=0.3)
    for key in "abcd":
        lru[key] = key * 100
        lru.get(key)
    lru["e"] = "e" * 100
    assert [key for key, _ in lru.items()] == ["e", "b", "c", "d"]
