"""Lines of the removed part that share rare words with the tail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, call, result, system, user

from trimtab.rules.summary.anchors.names import LINE_CHARS, MOST_LINES, MOST_TOLD, SHOWN_CHARS, find_echoes

FACT = "In production kestrel-portal listens on port 51234."
SPEAKERS = {"user": "the user said", "assistant": "the assistant said", "tool": "a tool returned"}
TALK = "We went through the notes of yesterday and they mostly make sense."


def said(line: str) -> str:
    return f"the user said: {line}"


def test_a_line_that_shares_a_rare_word_with_the_tail_is_found() -> None:
    """It does not matter who said it, or how far back it is."""
    tail = (assistant("Still to be looked at: kestrel-portal."),)
    for message in (user(FACT), assistant(f"{TALK} {FACT}"), result("1", f"{TALK}\n{FACT}\n{TALK}")):
        told = find_echoes((message, *(assistant(TALK) for _ in range(40))), tail, frozenset())
        assert told == (f"{SPEAKERS[message.role]}: {FACT}",)


def test_words_of_a_calls_arguments_count_as_the_tails() -> None:
    """They show what the agent is about to do."""
    tail = (assistant(None, call("1", arguments='{"service": "kestrel-portal"}')),)
    assert find_echoes((user(FACT),), tail, frozenset()) == (said(FACT),)


def test_results_in_the_tail_do_not_count() -> None:
    """Results in the tail do not count: a listing of a thousand names would match a thousand lines."""
    assert find_echoes((user(FACT),), (result("1", "kestrel-portal"),), frozenset()) == ()


def test_a_line_without_a_name_or_a_number_does_not_count() -> None:
    """Neither does a line whose names are all known already."""
    tail = (assistant("The kestrel is next: src/kestrel/main.py."),)
    assert find_echoes((user("The kestrel was a good idea."),), tail, frozenset()) == ()
    line = "The kestrel lives in src/kestrel/main.py."
    assert find_echoes((user(line),), tail, frozenset({"src/kestrel/main.py"})) == ()
    assert find_echoes((user(line),), tail, frozenset()) == (said(line),)


def test_a_word_in_many_lines_does_not_count() -> None:
    """Equal lines count as one."""
    tail = (assistant("On with the kestrel."),)
    lines = [f"The kestrel has feather {number + 10}." for number in range(MOST_LINES + 1)]
    assert find_echoes(tuple(map(user, lines)), tail, frozenset()) == ()
    assert len(find_echoes(tuple(map(user, lines[:-1])), tail, frozenset())) == MOST_LINES
    assert find_echoes((user(lines[0]),) * 50, tail, frozenset()) == (said(lines[0]),)


def test_compound_words_count_for_more_and_the_newest_of_equal_lines_comes_first() -> None:
    """A word that no other line has counts for more, too."""
    tail = (assistant("On with kestrel-portal and the heronry."),)
    plain, joined = "Here the heronry takes port 51234.", "Now this kestrel-portal needs port 5123."
    assert find_echoes((user(joined), user(plain)), tail, frozenset()) == (said(joined), said(plain))
    older, newer = "Now the heronry is at 10.", "Now the heronry is at 20."
    assert find_echoes((user(older), user(newer)), tail, frozenset()) == (said(newer), said(older))


@pytest.mark.parametrize(
    "line",
    ["   71\ttest_kestrel_portal()", "if kestrel_portal == '__main__':", "-rw-r--r-- 1 root root 13221 kestrel_portal",
     '[{"kestrel_portal":"HAT279"}', "src/a.py:12:    raise kestrel_portal('12')"],
)  # fmt: skip
def test_lines_of_programs_listings_and_data_do_not_count(line: str) -> None:
    """The number before a line of a file is not part of the line. Our own markers are not lines."""
    tail = (assistant("On with kestrel_portal."),)
    assert find_echoes((result("1", line),), tail, frozenset()) == ()
    ours = "[trimtab: omitted 12 lines of the kestrel_portal (~17 tokens); read the file again]"
    assert find_echoes((result("1", ours),), tail, frozenset()) == ()


def test_system_messages_and_endless_lines_do_not_count() -> None:
    """System messages are always forwarded; endless lines contain every word."""
    tail = (assistant("kestrel-portal"),)
    assert find_echoes((system(FACT),), tail, frozenset()) == ()
    assert find_echoes((user(f"{'x' * LINE_CHARS} {FACT}"),), tail, frozenset()) == ()


def test_sentences_end_in_other_scripts_too() -> None:
    """Without a space after them."""
    told = find_echoes(
        (user("你好。kestrel-portal 的端口是五万一千 51234。再见。"),), (assistant("kestrel-portal"),), frozenset()
    )
    assert told == (said("kestrel-portal 的端口是五万一千 51234。"),)


@given(st.lists(st.text(max_size=80), max_size=12), st.lists(st.text(max_size=40), max_size=4))
def test_whatever_is_said_lines_are_short_single_and_from_the_removed_part(said: list[str], later: list[str]) -> None:
    """They are the same in each call."""
    removed, tail = tuple(map(user, said)), tuple(map(assistant, later))
    told = find_echoes(removed, tail, frozenset())
    assert told == find_echoes(removed, tail, frozenset())
    assert len(told) <= MOST_TOLD
    assert all("\n" not in line and len(line) <= SHOWN_CHARS + 16 for line in told)
