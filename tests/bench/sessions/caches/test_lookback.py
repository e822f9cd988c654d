"""Anthropic's cache: a prefix is found again from a mark, at most 20 blocks back."""

from bench.sessions.caches.cache import Reading
from bench.sessions.caches.lookback import LOOK_BACK_BLOCKS, LookBack
from bench.sessions.marks import NO_MARKS, Marks, Place
from bench.sessions.prompts import Part

HEAD = Part("system", "head", 2000, block_ends=(4,))
STEPS = [Part("user", f"step {number:02}", 50, block_ends=(7,)) for number in range(60)]
UNMARKED = LookBack(is_automatic=False)


def mark(*indexes: int) -> Marks:
    """Marks at the ends of these parts."""
    return Marks(controls=tuple(Place(index, 7 if index else 4) for index in indexes))


def test_without_marks_nothing_is_cached() -> None:
    """Claude behind chat completions, if nobody sets marks."""
    cache = UNMARKED.open()
    for moment in (0.0, 1.0):
        assert cache.read((HEAD, *STEPS[:3]), NO_MARKS, moment) == Reading(0, 0)


def test_a_mark_on_the_head_keeps_the_head() -> None:
    cache, marks = UNMARKED.open(), mark(0)
    assert cache.read((HEAD, *STEPS[:3]), marks, 0.0) == Reading(0, 2000)
    assert cache.read((HEAD, *STEPS[:9]), marks, 1.0) == Reading(2000, 0)


def test_the_automatic_mark_moves_with_the_prompt() -> None:
    cache = LookBack().open()
    assert cache.read((HEAD, *STEPS[:3]), NO_MARKS, 0.0) == Reading(0, 2150)
    assert cache.read((HEAD, *STEPS[:5]), NO_MARKS, 1.0) == Reading(2150, 100)


def test_it_finds_an_entry_twenty_blocks_back_and_no_further() -> None:
    """The block of the mark is the first of the twenty."""
    for added, cached in ((LOOK_BACK_BLOCKS - 1, 2050), (LOOK_BACK_BLOCKS, 0)):
        cache = LookBack().open()
        cache.read((HEAD, *STEPS[:1]), NO_MARKS, 0.0)
        assert cache.read((HEAD, *STEPS[: 1 + added]), NO_MARKS, 1.0).cached_tokens == cached


def test_blocks_of_one_message_count_each() -> None:
    many = Part("assistant", "\n".join("abc" for _ in range(30)), 90, block_ends=tuple(4 * n + 3 for n in range(30)))
    cache = LookBack().open()
    cache.read((HEAD,), NO_MARKS, 0.0)
    assert cache.read((HEAD, many), NO_MARKS, 1.0).cached_tokens == 0


def test_with_four_marks_of_its_own_a_request_has_no_automatic_one() -> None:
    """So what stands behind its last mark is neither written nor read."""
    cache, marks = LookBack().open(), mark(0, 1, 2, 3)
    cache.read((HEAD, *STEPS[:3]), Marks(controls=marks.controls), 0.0)
    full = cache.read((HEAD, *STEPS[:8]), mark(0, 1, 2, 3), 1.0)
    assert full == Reading(2150, 0)


def test_an_entry_that_is_read_lives_on_with_all_within_it() -> None:
    cache = LookBack(lifetime_seconds=300.0).open()
    cache.read((HEAD, *STEPS[:2]), mark(0), 0.0)
    cache.read((HEAD, *STEPS[:4]), NO_MARKS, 250.0)
    assert cache.read((HEAD, *STEPS[40:42]), mark(0), 500.0) == Reading(2000, 100)
    assert cache.read((HEAD, *STEPS[:4]), NO_MARKS, 551.0).lost_tokens > 0
