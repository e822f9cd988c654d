"""The cache of GPT-5.6: a prefix is read only at a breakpoint."""

from bench.sessions.caches.breakpoints import Breakpoints
from bench.sessions.caches.cache import Reading
from bench.sessions.marks import NO_MARKS, Marks, Place
from bench.sessions.prompts import Part

HEAD, TASK = Part("system", "head", 2000), Part("user", "task", 100)


def talk(length: int) -> tuple[Part, ...]:
    """A session's prompt after so many answers with a result each."""
    return (HEAD, TASK, *STEPS[: 2 * length])


STEPS = [Part(role, f"{role} {number}", 50) for number in range(100) for role in ("assistant", "tool")]


def test_a_growing_prompt_is_read_up_to_its_last_implicit_breakpoint() -> None:
    cache = Breakpoints().open()
    assert cache.read(talk(0), NO_MARKS, 0.0) == Reading(0, 2100)
    assert cache.read(talk(1), NO_MARKS, 1.0) == Reading(2100, 100)
    assert cache.read(talk(2), NO_MARKS, 2.0) == Reading(2200, 100)


def test_a_changed_part_loses_all_behind_it_even_where_texts_are_the_same() -> None:
    """Unlike a cache of the longest prefix, it does not fall back to what is not a breakpoint."""
    cache = Breakpoints().open()
    cache.read(talk(3), NO_MARKS, 0.0)
    changed = (HEAD, Part("user", "task changed", 100), *STEPS[:6])
    assert cache.read(changed, NO_MARKS, 1.0).cached_tokens == 0


def test_a_mark_inside_a_message_is_found_again_when_its_rest_differs() -> None:
    """The summary's message ends with words that change; the mark stands at the end of the summary."""
    cache = Breakpoints().open()
    first, second = (Part("user", f"summary\n{end}", 100) for end in ("one", "two"))
    marks = Marks(breakpoints=(Place(1, len("summary")),))
    cache.read((HEAD, first), marks, 0.0)
    found = cache.read((HEAD, second), marks, 1.0)
    assert HEAD.tokens < found.cached_tokens < HEAD.tokens + 100


def test_a_breakpoint_that_nobody_reads_expires() -> None:
    cache = Breakpoints(lifetime_seconds=1800.0).open()
    cache.read(talk(1), NO_MARKS, 0.0)
    assert cache.read(talk(1), NO_MARKS, 1800.0) == Reading(2200, 0)
    assert cache.read(talk(1), NO_MARKS, 3601.0) == Reading(0, 2200, 2200)
