"""vLLM's cache: blocks of 16 tokens that sessions push out of each other's way."""

from bench.sessions.caches.blocks import BlockLru
from bench.sessions.caches.cache import Reading
from bench.sessions.marks import NO_MARKS
from bench.sessions.prompts import Part

FIRST, SECOND, OTHER = Part("system", "first", 100), Part("user", "second", 60), Part("system", "other", 320)


def test_full_blocks_are_read_again() -> None:
    cache = BlockLru().open()
    assert cache.read((FIRST, SECOND), NO_MARKS, 0.0) == Reading(0, 160)
    assert cache.read((FIRST, SECOND, SECOND), NO_MARKS, 0.0) == Reading(160, 48)


def test_one_token_of_a_known_prompt_is_computed() -> None:
    """So its last block is, if it is full."""
    cache = BlockLru().open()
    cache.read((FIRST, SECOND), NO_MARKS, 0.0)
    assert cache.read((FIRST, SECOND), NO_MARKS, 0.0).cached_tokens == 144


def test_a_block_across_two_messages_is_known_by_both() -> None:
    cache = BlockLru().open()
    cache.read((FIRST, SECOND), NO_MARKS, 0.0)
    assert cache.read((FIRST, OTHER), NO_MARKS, 0.0).cached_tokens == 96


def test_parts_with_a_common_beginning_share_its_blocks() -> None:
    text = "word " * 200
    left, right = (Part("user", text + end, 210) for end in ("left", "right"))
    cache = BlockLru().open()
    cache.read((FIRST, left), NO_MARKS, 0.0)
    assert cache.read((FIRST, right), NO_MARKS, 0.0).cached_tokens >= 280
    assert cache.read((FIRST, left), NO_MARKS, 0.0).cached_tokens == 304, "the older one is still known"


def test_others_push_out_what_was_used_longest_ago_its_end_first() -> None:
    """The beginning of the evicted prompt is still there."""
    cache = BlockLru(capacity_tokens=400).open()
    cache.read((FIRST, SECOND), NO_MARKS, 0.0)
    cache.read((OTHER,), NO_MARKS, 0.0)
    found = cache.read((FIRST, SECOND, SECOND), NO_MARKS, 0.0)
    assert found == Reading(80, 128, 80)


def test_what_is_used_again_is_not_the_next_to_go() -> None:
    cache = BlockLru(capacity_tokens=480).open()
    cache.read((FIRST, SECOND), NO_MARKS, 0.0)
    cache.read((OTHER,), NO_MARKS, 0.0)
    cache.read((FIRST, SECOND), NO_MARKS, 0.0)
    cache.read((Part("system", "third", 320),), NO_MARKS, 0.0)
    assert cache.read((FIRST, SECOND, SECOND), NO_MARKS, 0.0).cached_tokens == 160


def test_time_alone_takes_nothing_away() -> None:
    cache = BlockLru().open()
    cache.read((FIRST, SECOND), NO_MARKS, 0.0)
    assert cache.read((FIRST, SECOND, SECOND), NO_MARKS, 1e9).cached_tokens == 160
