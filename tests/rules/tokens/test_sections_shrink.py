"""What would have to shrink, and by how much."""

from functools import partial
from itertools import groupby
from operator import attrgetter

from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, call, conversation, count, fill, result, system, transcripts, user

from trimtab.rules.policy import MEMORY_TAGS
from trimtab.rules.text.markers import INTRODUCTION, SUMMARY_END
from trimtab.rules.tokens.sections import (
    CURRENT,
    SECTIONS,
    SUMMARY,
    TASK,
    Part,
    Sections,
    count_sections,
    find_marks,
    list_parts,
    share_excess,
)

FIND = partial(find_marks, tags=MEMORY_TAGS, count=count)


@given(transcripts(), st.integers(0, 200), st.floats(0.05, 20))
def test_the_parts_of_a_section_add_up_to_it(messages, fixed, ratio) -> None:
    """At any ratio, so the figures of an answer never contradict each other."""
    talk = conversation(*messages, fixed_tokens=fixed)
    by_section = groupby(list_parts(talk, FIND, ratio), attrgetter("section"))
    added = {section: sum(part.tokens for part in parts) for section, parts in by_section}

    assert Sections(**added) == count_sections(talk, FIND).scale(ratio)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=len(SECTIONS)), st.floats(0.01, 1))
def test_what_is_asked_adds_up_to_the_excess(sizes, share) -> None:
    """No part is asked for more than it has, and none is named that need not shrink."""
    parts = [Part(what, section, size) for (what, section), size in zip(SECTIONS.items(), sizes, strict=False)]
    excess = max(int(share * sum(sizes)), 1)
    shared = share_excess(parts, excess)

    assert sum(part.by_tokens for part in shared) == excess
    assert all(0 < part.by_tokens <= part.tokens for part in shared)


def test_the_largest_part_is_named_first_and_the_summary_last() -> None:
    """A client cannot shorten a summary of trimtab's own."""
    summary = f"{INTRODUCTION}\n{fill('work', 900)}\n{SUMMARY_END}"
    talk = conversation(
        system(fill("rule", 300)),
        user(f"Mend it.\n{summary}"),
        assistant(None, call("1")),
        result("1", fill("log", 400)),
        user(fill("And this?", 100)),
    )
    named = [part.what for part in share_excess(list_parts(talk, FIND), talk.tokens)]

    assert named[:3] == ["the newest tool results", "the system messages at the beginning", "the last user message"]
    assert named[-1] == SUMMARY
    (first,) = share_excess(list_parts(talk, FIND), 150)
    assert (first.what, first.section, first.by_tokens) == ("the newest tool results", "recent", 150)


def test_what_the_head_has_too_much_is_asked_of_its_own_user_message() -> None:
    """The first one; the last one, if it is the first, too."""
    for what, others in ((TASK, [CURRENT]), (CURRENT, [])):
        parts = [Part(name, SECTIONS[name], 900) for name in (*others, "the newest tool results")]
        shared = share_excess([*parts, Part(what, SECTIONS[what], 100)], 50, head_tokens=50)
        assert [(part.what, part.by_tokens) for part in shared] == [(what, 50)]
