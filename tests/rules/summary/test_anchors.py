"""The index after a summary: within its budget, in one quotation, and without repetitions."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.builders import count, count_words, transcripts, user
from support.golden import check_golden
from support.told_sessions import told_sessions
from support.tool_steps import step

from trimtab.rules.conversation import CountTokens, Message
from trimtab.rules.summary import anchors
from trimtab.rules.summary.anchors import (
    _SEPARATORS,
    CODE_SHARE,
    CORRECTIONS_SHARE,
    MIN_TOKENS,
    Removed,
    _leave_out_last,
    _write_corrections,
    write_anchors,
)
from trimtab.rules.summary.names import Kind, find_names, read_mentions
from trimtab.rules.text.markers import CODE_TITLE, CORRECTIONS_TITLE, NAMES_TITLE, QUOTE_END, QUOTE_START

BUDGETS = st.integers(0, 400) | st.integers(-5, 5000)
WORDS = st.sampled_from(
    [f"{stem}{number}" for number in range(20) for stem in ("src/m_", "name_", "1234", "camelCase")]
)
SAID = st.lists(WORDS, max_size=12).map(" ".join)
COUNTERS = pytest.mark.parametrize("counter", [count, count_words, len])


def talk(*said: str) -> tuple[Message, ...]:
    """A step for each text: in its call's arguments, and in its result."""
    steps = (step("look_up", {"query": text}, f"found {text}") for text in said)
    return tuple(message for one in steps for message in one)


def removed(*messages: Message, present: frozenset[str] = frozenset(), is_told: bool = False) -> Removed:
    return Removed(messages, [read_mentions(message) for message in messages], present, is_told)


def lines_of(text: str) -> list[str]:
    """The lines of the quotation; each begins with the quotation's sign."""
    first, title, *lines, last = text.split("\n")
    assert (first, title, last) == (QUOTE_START, f"> {NAMES_TITLE}", QUOTE_END)
    assert all(line.startswith("> ") for line in lines)
    return lines


@COUNTERS
@given(messages=transcripts(), said=st.lists(SAID, max_size=8), max_tokens=BUDGETS, is_told=st.booleans())
def test_the_index_is_within_its_budget(
    counter: CountTokens, messages: tuple[Message, ...], said: list[str], max_tokens: int, *, is_told: bool
) -> None:
    """For any budget. It is empty, or has its frame and at least one line."""
    text = write_anchors(removed(*messages, *talk(*said), is_told=is_told), max_tokens=max_tokens, count=counter)
    assert counter(text) <= max(max_tokens, 0)
    assert text == "" or lines_of(text)
    if max_tokens < MIN_TOKENS:
        assert text == ""


@given(said=st.lists(SAID, min_size=1, max_size=8), present=st.frozensets(WORDS))
def test_with_enough_room_each_name_occurs_once(said: list[str], present: frozenset[str]) -> None:
    """Names that are verbatim elsewhere are left out."""
    made = replace(removed(*talk(*said), present=present), is_told=True)
    text = write_anchors(made, max_tokens=100_000, count=count)
    named = {name for mentions in made.mentions for name in mentions.asked | mentions.told}
    if not named - present:
        assert text == ""
        return
    assert find_names(text) - find_names(NAMES_TITLE) == named - present
    rows = [line.removeprefix("> ").partition(": ") for line in lines_of(text)]
    told = [name for kind, _, row in rows for name in row.split(_SEPARATORS[Kind(kind)])]
    assert len({name.split()[-1] for name in told}) == len(told)


SERVER = step("bash", {"command": "python server.py &"}, "[1] 412")


def test_running_processes_are_listed_however_old_they_are() -> None:
    """Unless it was ended, also in the tail."""
    messages = (*SERVER, *[user("Go on.")] * 2000)
    assert "(pid 412)" in write_anchors(removed(*messages), max_tokens=200, count=count)
    ended = replace(removed(*messages), tail=step("bash", {"command": "kill 412"}))
    assert "(pid 412)" not in write_anchors(ended, max_tokens=200, count=count)


def test_a_line_of_code_needs_the_room_that_it_takes_as_json() -> None:
    """Down to the last character. Behind a line without room, no other call has one."""
    line, other = 'print("size_of_a")', "print(size_of_b, size_of_b)"
    messages = [
        *step("write", {"content": "x\ny = size_of_c"}, "ok"),
        *step("write", {"content": f"{line}\n{other}"}, "ok"),
    ]
    needed = len(f"> {CODE_TITLE}\n") + len(line) + len('""') + len("\\n")
    frame = len(f"{QUOTE_START}\n> {NAMES_TITLE}\n{QUOTE_END}")
    for spare, is_there in ((0, True), (-1, False)):
        max_tokens = ceil((needed + spare) / CODE_SHARE) + frame
        text = write_anchors(removed(*messages), max_tokens=max_tokens, count=len)
        assert ('> "print(\\"size_of_a\\")"\n' in text) is is_there
        assert "y = size_of_c" not in text


def test_lines_that_fill_the_room_stay_and_no_title_is_left_alone() -> None:
    """`> b` and its line break are four characters."""
    told = ["a", "b"]
    assert (_leave_out_last(told, 0, len), told) == (0, ["a", "b"])
    assert (_leave_out_last(told, -1, len), told) == (3, ["a"])
    told = ["a", CODE_TITLE, "b"]
    assert (_leave_out_last(told, -1, len), told) == (3 + len(f"> {CODE_TITLE}\n"), ["a"])


def test_of_the_corrections_the_newest_are_written_that_fit_to_the_last_token() -> None:
    """Oldest first, with their line breaks."""
    said = ("No, port is 8080, not 8081.", "No, host is b1, not a1.")
    title, lines = f"## {CORRECTIONS_TITLE}\n\n", [f"- {one}\n" for one in said]
    room = {number: len(title) + len("".join(lines[2 - number :])) for number in (1, 2)}
    for tokens, number in ((room[2], 2), (room[2] - 1, 1), (room[1], 1), (room[1] - 1, 0)):
        written = _write_corrections([user("Begin."), *map(user, said)], ceil((tokens + 0.5) / CORRECTIONS_SHARE), len)
        assert written == (title[:-1] + "".join(lines[2 - number :]) + "\n" if number else "")


def test_corrections_for_which_there_is_no_room_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for corrections nor for what is to be remembered: a long chat has thousands of both."""
    said = iter([("No, port is 8080, not 8081.", False), ("Remember that port is 8080.", True)] * 1000)
    monkeypatch.setattr(anchors, "find_corrections", lambda _: said)
    assert "Remember" in _write_corrections([], 1000, len)
    assert len(list(said)) > 1900


# Indexes of whole sessions, as they are: what still runs, errors, deeds, echoes and names.


@pytest.mark.parametrize("name", told_sessions())
def test_an_index_is_as_it_was(name: str) -> None:
    """Of all but the newest messages: with little room and with more, and beside a digest."""
    messages = told_sessions()[name]
    head, tail = messages[:-4], messages[-4:]
    alone = Removed(head, [read_mentions(each) for each in head], frozenset({"src/quay/tides.py"}), tail=tail)
    beside = Removed(head, alone.mentions, frozenset(), is_told=True, tail=tail)
    check_golden(
        f"anchors/{name}",
        {
            "100 tokens": write_anchors(alone, max_tokens=100, count=count),
            "300 tokens": write_anchors(alone, max_tokens=300, count=count),
            "900 tokens": write_anchors(alone, max_tokens=900, count=count),
            "300 tokens, beside a digest": write_anchors(beside, max_tokens=300, count=count),
        },
    )
