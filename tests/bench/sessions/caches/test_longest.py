"""The cache that finds the longest common prefix, and when it forgets."""

import pytest

from bench.sessions.caches.cache import Reading
from bench.sessions.caches.longest import LongestPrefix
from bench.sessions.marks import NO_MARKS
from bench.sessions.prompts import Part, count_text

KIND = LongestPrefix(block_tokens=128, minimum_tokens=1024, lifetime_seconds=300.0)


def make(role: str, tokens: int, text: str = "") -> Part:
    """A message of so many tokens."""
    return Part(role, text or f"{role} {tokens}", tokens)


HEAD, TASK, ANSWER, RESULT = make("system", 600), make("user", 500), make("assistant", 200), make("tool", 300)


def test_what_was_sent_before_is_read_in_whole_blocks() -> None:
    cache = KIND.open()
    assert cache.read((HEAD, TASK), NO_MARKS, 0.0) == Reading(0, 1100)
    assert cache.read((HEAD, TASK, ANSWER, RESULT), NO_MARKS, 10.0) == Reading(1024, 576)


def test_the_first_different_part_counts_with_its_common_text() -> None:
    """A message that changes in its middle still shares its beginning."""
    common = "the same words again and again " * 300
    first, second = (make("user", count_text(common) + 5, common + end) for end in ("one end", "another end"))
    cache = LongestPrefix(block_tokens=1, minimum_tokens=1).open()
    cache.read((HEAD, first), NO_MARKS, 0.0)
    cached = cache.read((HEAD, second), NO_MARKS, 1.0).cached_tokens
    assert cached == pytest.approx(HEAD.tokens + count_text(common), abs=2)


def test_a_short_prompt_is_neither_read_nor_written() -> None:
    cache = KIND.open()
    for moment in (0.0, 1.0):
        assert cache.read((HEAD,), NO_MARKS, moment) == Reading(0, 0)


def test_what_expired_is_lost_and_is_there_again_afterwards() -> None:
    cache, prompt = KIND.open(), (HEAD, TASK, ANSWER, RESULT)
    cache.read(prompt, NO_MARKS, 0.0)
    assert cache.read(prompt, NO_MARKS, 301.0) == Reading(0, 1600, 1536)
    assert cache.read(prompt, NO_MARKS, 600.0) == Reading(1536, 64)


def test_a_prefix_that_is_sent_again_lives_on() -> None:
    """The end of the longer prompt expires; its beginning was read in between."""
    cache, longer = KIND.open(), (HEAD, TASK, ANSWER, RESULT)
    cache.read(longer, NO_MARKS, 0.0)
    cache.read((HEAD, TASK), NO_MARKS, 200.0)
    assert cache.read(longer, NO_MARKS, 400.0) == Reading(1024, 576, 512)


def test_without_a_lifetime_nothing_expires() -> None:
    cache = LongestPrefix().open()
    cache.read((HEAD, TASK), NO_MARKS, 0.0)
    assert cache.read((HEAD, TASK), NO_MARKS, 1e9) == Reading(1024, 76)
