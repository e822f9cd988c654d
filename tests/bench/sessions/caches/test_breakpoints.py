"""The cache of GPT-5.6: a prefix is read only at a breakpoint."""

from bench.sessions.caches.breakpoints import MOST_LOOKED, MOST_WRITTEN, Breakpoints
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


def test_if_only_the_requests_own_breakpoints_are_looked_at_a_growing_prompt_reads_nothing() -> None:
    cache = Breakpoints(reads_earlier=False).open()
    cache.read(talk(0), NO_MARKS, 0.0)
    assert cache.read(talk(1), NO_MARKS, 1.0) == Reading(0, 2200)


def test_a_mark_on_what_stays_is_read_then() -> None:
    cache, marks = Breakpoints(reads_earlier=False).open(), Marks(breakpoints=(Place(0, len(HEAD.text)),))
    cache.read(talk(0), marks, 0.0)
    assert cache.read(talk(1), marks, 1.0) == Reading(2000, 200)


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


def test_only_the_latest_breakpoints_are_looked_at() -> None:
    cache = Breakpoints().open()
    cache.read(talk(0), NO_MARKS, 0.0)
    assert cache.read(talk(MOST_LOOKED - 1), NO_MARKS, 1.0).cached_tokens == 2100
    cache = Breakpoints().open()
    cache.read(talk(0), NO_MARKS, 0.0)
    assert cache.read(talk(MOST_LOOKED), NO_MARKS, 1.0).cached_tokens == 0


def test_at_most_four_are_written_the_implicit_one_among_them() -> None:
    cache = Breakpoints(reads_earlier=False).open()
    places = tuple(Place(index, len(part.text)) for index, part in enumerate(talk(3)) if part.role == "tool")
    marks = Marks(breakpoints=(Place(0, len(HEAD.text)), Place(1, len(TASK.text)), *places))
    assert len(marks.breakpoints) == MOST_WRITTEN + 1
    cache.read(talk(3), marks, 0.0)
    assert cache.read((HEAD, *STEPS[20:22]), Marks(breakpoints=marks.breakpoints[:1]), 1.0).cached_tokens == 0


def test_explicit_mode_without_a_mark_caches_nothing() -> None:
    cache = Breakpoints().open()
    for moment in (0.0, 1.0):
        assert cache.read(talk(1), Marks(is_explicit=True), moment) == Reading(0, 0)


def test_a_breakpoint_that_nobody_reads_expires() -> None:
    cache = Breakpoints(lifetime_seconds=1800.0).open()
    cache.read(talk(1), NO_MARKS, 0.0)
    assert cache.read(talk(1), NO_MARKS, 1800.0) == Reading(2200, 0)
    assert cache.read(talk(1), NO_MARKS, 3601.0) == Reading(0, 2200, 2200)


def test_a_prefix_below_the_minimum_is_not_written() -> None:
    cache = Breakpoints().open()
    for moment in (0.0, 1.0):
        assert cache.read((TASK,), NO_MARKS, moment) == Reading(0, 0)
