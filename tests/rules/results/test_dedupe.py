"""Repeated results: pointers and diffs, and that their targets are forwarded."""

from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.builders import (
    IMAGE,
    assistant,
    call,
    conversation,
    count,
    fill,
    function_result,
    listing,
    result,
    shown,
    user,
)
from support.checker import expand, read_pointer
from support.steps import count_steps

from trimtab.rules.conversation import Message, Outcome, Role, ToolCall
from trimtab.rules.policy import Budget, Policy, ToolRule, Treatment
from trimtab.rules.results.dedupe import (
    DIFF_CHARS,
    MAX_CHARS,
    MAX_DIFF_CHARS,
    MIN_CHARS,
    Compared,
    Index,
    Sketch,
    dedupe_tool_results,
    find_hunks,
    sketch_text,
    write_diff,
)
from trimtab.rules.results.work import Allowance, LargeWorkError, Work
from trimtab.rules.text.markers import POINTER

TEXT = listing(1)
CHANGED = listing(1, 7)


def steps(*texts: str | tuple[str, ...], name: str = "read", arguments: str = '{"path":"a.py"}') -> list[Message]:
    """A step for each result; the calls differ only in their ids."""
    messages: list[Message] = []
    for number, text in enumerate(texts):
        parts = (text,) if isinstance(text, str) else text
        messages += [assistant(None, call(f"c{number}", name, arguments)), result(f"c{number}", *parts)]
    return messages


def dedupe(*messages: Message, start: int = 0, policy: Policy | None = None, work: Work | None = None) -> Outcome:
    return dedupe_tool_results(conversation(*messages), policy or Policy(), start=start, work=work or Work(count))


def replaced(outcome: Outcome) -> list[int]:
    """How many results back each result points; 0 for those that are forwarded in full."""
    results = (message for message in outcome.conversation.messages if message.role is Role.TOOL)
    return [read_pointer(message.text) if message.edited else 0 for message in results]


def test_a_result_like_an_earlier_one_becomes_a_pointer_or_a_diff() -> None:
    """It says how many results back that is, and from which call; a diff has the lines with their places."""
    first, second = steps(TEXT), steps(TEXT, arguments='{"path": "b.py"}')
    outcome = dedupe(*first, *second)
    assert outcome.conversation.messages[3].texts == (
        '[trimtab: same as the tool result 1 before this, from read {"path":"a.py"}]',
    )
    assert outcome.conversation.messages[:3] == (*first, second[0])
    again = dedupe(*first, *steps("other", TEXT))
    assert again.conversation.messages[-1].texts == (
        "[trimtab: same as the tool result 2 before this, from the same call]",
    )
    outcome = dedupe(*steps(TEXT, CHANGED))
    old, new = TEXT.split("\n"), CHANGED.split("\n")
    assert outcome.conversation.messages[-1].text.split("\n") == [
        "[trimtab: same as the tool result 1 before this, from the same call, except for this diff:]",
        "@@ -1,1 +1,1 @@",
        "-" + old[0],
        "+" + new[0],
        "@@ -8,1 +8,1 @@",
        "-" + old[7],
        "+" + new[7],
    ]


def test_what_is_not_known_of_shortened_results_is_not_said() -> None:
    """The omitted parts may differ. A diff of results that lost lines would compare the counts in markers."""
    for edited in [1, 3]:
        for text in (TEXT, CHANGED):
            messages = steps(TEXT, text)
            messages[edited] = replace(messages[edited], edited=True)
            first = dedupe(*messages).conversation.messages[-1].text
            assert first.startswith(
                "[trimtab: same as the tool result 1 before this, in the parts shown, from the same call"
            )
    old, new = (f"{TEXT}\n[trimtab: omitted 90 lines (~{tokens} tokens); narrow it]" for tokens in (773, 774))
    messages = [replace(message, edited=message.role == "tool") for message in steps(old, new)]
    assert dedupe(*messages).decisions == ()
    assert dedupe(*steps(old, new)).decisions


def test_pointers_point_to_what_stands_in_full() -> None:
    """Never to another pointer, to what stands before the start, or to the same step, which may shrink."""
    assert replaced(dedupe(*steps(TEXT, TEXT, TEXT, CHANGED, CHANGED))) == [0, 1, 2, 3, 4]
    other = listing(2)
    assert replaced(dedupe(*steps(TEXT, other, listing(2, 3), TEXT))) == [0, 0, 1, 3]
    messages = steps(TEXT, TEXT, TEXT)
    assert replaced(dedupe(*messages, start=2)) == [0, 0, 1]
    assert replaced(dedupe(*messages, start=4)) == [0, 0, 0]
    assert replaced(dedupe(*messages, start=6)) == [0, 0, 0]
    together = [assistant(None, call("a"), call("b"), call("c"))]
    together += [result("a", TEXT), result("b", TEXT), result("c", CHANGED)]
    assert replaced(dedupe(*together)) == [0, 0, 0]
    assert replaced(dedupe(*together, *steps(TEXT, CHANGED))) == [0, 0, 0, 3, 2]


def test_what_is_left_alone() -> None:
    """What saves less than half, is small or huge, has media or our own text; several or long texts but as a whole."""
    for twice in [
        result("c0", fill("short", MIN_CHARS // 4)),
        result("c0", "x" * (MAX_CHARS + 1)),
        shown("c0", IMAGE, text=TEXT),
        result("c0", f"{POINTER}1 back]\n{TEXT}"),
        user(TEXT),
    ]:
        before = conversation(assistant(None, call("c0")), twice, assistant(None, call("c0")), replace(twice))
        assert dedupe_tool_results(before, Policy(), start=0, work=Work(count)).conversation is before
    lines = TEXT.split("\n")
    half = "\n".join(
        line if number % 2 else f"now something quite different: {number}" for number, line in enumerate(lines)
    )
    third = "\n".join(line if number % 3 else f"now: {number}" for number, line in enumerate(lines))
    assert replaced(dedupe(*steps(TEXT, third))) == [0, 0]
    diffs = dict[tuple[bytes, bytes], str]()
    assert replaced(dedupe(*steps(TEXT, half), work=Work(count, diffs=diffs))) == [0, 0]
    assert list(diffs.values()) == [""]  # a diff that is no shorter is not remembered
    assert replaced(dedupe(*steps(TEXT, half, half + "\nmore"))) == [0, 0, 1]
    large = "\n".join(f"a line of a large file: {number}" for number in range(MAX_DIFF_CHARS // 24))
    assert replaced(dedupe(*steps(large, large + "\nmore", large))) == [0, 0, 2]
    narrow = "\n".join(f"{number}" for number in range(2000))
    assert replaced(dedupe(*steps(narrow, narrow + "\nmore", narrow))) == [0, 0, 2]
    parts = (TEXT, CHANGED)
    assert replaced(dedupe(*steps(parts, parts))) == [0, 1]
    assert replaced(dedupe(*steps(parts, "\n".join(parts), parts, (*parts, "more"), parts[::-1]))) == [0, 0, 2, 0, 0]


def test_what_a_tool_says_goes_before_the_policy() -> None:
    """Of deduplication, and of what is exempt: others point to it. A result without a call has its own name."""
    policy = Policy(tools=(ToolRule("look", Treatment(Budget(300), is_exempt=True)),))
    parts = (steps(TEXT), steps(TEXT, name="look"), steps(TEXT), steps(CHANGED, name="look"))
    assert replaced(dedupe(*chain(*parts), policy=policy)) == [0, 0, 2, 0]
    assert replaced(dedupe(*chain(*parts[1:]), policy=policy)) == [0, 1, 0]
    for tool, policy_wide in ((True, False), (False, True)):
        policy = Policy(dedupe=policy_wide, tools=(ToolRule("read", Treatment(Budget(300), dedupe=tool)),))
        assert replaced(dedupe(*steps(TEXT, TEXT), policy=policy)) == [0, int(tool)]
        assert replaced(dedupe(*steps(TEXT, TEXT, name="run"), policy=policy)) == [0, int(policy_wide)]
    policy = Policy(tools=(ToolRule("run", Treatment(Budget(300), is_exempt=True)),))
    messages = [one for _ in range(2) for one in (assistant("on"), function_result(TEXT))]
    assert replaced(dedupe(*messages, policy=policy)) == [0, 0]
    pointer = dedupe(*messages).conversation.messages[-1].text
    assert pointer == "[trimtab: same as the tool result 1 before this]"


_HOSTILE = st.text(st.sampled_from("a]\n\r\x00\x1b\x85\u2028\u202e\ud800, 1back:"), max_size=300)


@given(name=_HOSTILE, arguments=_HOSTILE)
@example(name="x" * 10_000, arguments="y" * 10_000)
def test_a_pointer_is_one_short_line_whatever_the_call_says(name: str, arguments: str) -> None:
    """Names and arguments come from the model: they may be long and contain line breaks and control characters."""
    before = assistant(None, call("c"))
    hostile = replace(before, tool_calls=(ToolCall("c", name, arguments),))
    text = listing(1, lines=40)
    outcome = dedupe(hostile, result("c", text), *steps(listing(1, 7, lines=40), text))
    assert replaced(outcome) == [0, 1, 2]
    header, *lines = outcome.conversation.messages[3].text.split("\n")
    pointer = outcome.conversation.messages[5].text
    assert lines[0] == "@@ -1,1 +1,1 @@"
    for line in (header, pointer):
        assert len(line) < 250
        assert line.isprintable()
        line.encode()


def bounded(max_chars: int, sketches: dict[str, Sketch], diffs: dict[tuple[bytes, bytes], str]) -> Work:
    return Work(count, allowance=Allowance(max_chars), sketches=sketches, diffs=diffs)


def test_more_work_than_is_allowed_is_not_begun() -> None:
    """New texts and new pairs take from the allowance. Cached ones do not."""
    texts, sketches = (TEXT, CHANGED), dict[str, Sketch]()
    diffs = dict[tuple[bytes, bytes], str]()
    plain = dedupe(*steps(*texts))
    for allowed in (0, len(TEXT), len(TEXT + CHANGED)):
        with pytest.raises(LargeWorkError):
            dedupe(*steps(*texts), work=bounded(allowed, dict(sketches), diffs))
    assert not diffs
    assert dedupe(*steps(*texts), work=bounded(len(TEXT + CHANGED) + DIFF_CHARS, sketches, diffs)) == plain
    assert (len(sketches), len(diffs)) == (2, 1)
    assert dedupe(*steps(*texts), work=bounded(0, sketches, diffs)) == plain


def test_the_work_goes_by_the_number_of_results() -> None:
    """Twice the results are twice the work. Comparing each result with each would be four times the work."""
    few, more = (steps(*(listing(at, at, lines=8) for at in range(number))) for number in (200, 400))
    assert 1.5 < count_steps(lambda: dedupe(*more)) / count_steps(lambda: dedupe(*few)) < 2.5


def compared(number: int, text: str) -> Compared:
    return Compared(number, result(f"c{number}", text), None, sketch_text(text))


def test_the_newest_of_those_that_share_the_most_lines_is_found() -> None:
    """A file that is read again is most similar to its latest version. Few lines in common are nothing."""
    index, results = Index(), [compared(number, listing(1, number)) for number in range(3)]
    for one in results:
        index.add(one)
    assert index.find_near(sketch_text(listing(1, 9))) is results[2]
    index = Index()
    index.add(compared(1, listing(1)))
    one_shared = listing(1).splitlines()[0] + "\n" + listing(2)
    assert index.find_near(sketch_text(one_shared)) is None
    assert index.find_near(sketch_text(listing(3))) is None
    assert index.find_near(sketch_text("one line")) is None
    assert index.find_near(None) is None


_LINES = st.sampled_from(
    ["", "a", "b", "c", "d", "-a", "+b", "@@ -1,1 +1,1 @@", "[trimtab: same as the tool result 1 back]",
     "a\r", "\ud800", "a\x85b\u2028c", " a"]
)  # fmt: skip
_TEXTS = st.lists(_LINES, max_size=12).map("\n".join)


@given(old=_TEXTS, new=_TEXTS)
def test_the_new_text_comes_back_to_the_letter(old: str, new: str) -> None:
    """For any lines, also those that look like a hunk's header."""
    written = write_diff(old, new)
    assert (written == "") == (old == new)
    if written:
        assert expand([old], "header\n" + written) == [new]


@given(old=_TEXTS, edits=st.lists(st.tuples(st.integers(0, 400), _LINES), max_size=4))
def test_few_edits_make_a_short_diff(old: str, edits: list[tuple[int, str]]) -> None:
    """If all other lines are different from each other, the diff has only changed lines."""
    lines = [f"{number}: {line}" for number, line in enumerate((old + "\n" * 20).split("\n"))]
    changed = list(lines)
    for place, line in edits:
        changed[place % len(lines)] = line
    hunks = list(find_hunks(lines, changed))
    assert sum(hunk.new_stop - hunk.new_start for hunk in hunks) <= len(edits)
    assert sum(hunk.old_stop - hunk.old_start for hunk in hunks) <= len(edits)


def test_the_form_is_that_of_a_unified_diff_without_context() -> None:
    """With place and number in both texts. Sketches are the same on every machine: no hashes of Python's."""
    old = "one\ntwo\nthree\nfour\nfive\nsix"
    new = "zero\none\ntwo\n3\nfour\nsix"
    assert write_diff(old, new) == "@@ -0,0 +1,1 @@\n+zero\n@@ -3,1 +4,1 @@\n-three\n+3\n@@ -5,1 +5,0 @@\n-five"
    sketch = sketch_text("a line that is long enough\n\nanother line, long enough")
    assert sketch.lines == (1631350595, 3343473193)
    assert sketch.digest.hex().startswith("3acaabbd9e6ff073")
    assert sketch_text("no line break").lines == ()
    assert sketch_text("\ud800").digest != sketch_text("\udfff").digest


def test_the_work_is_linear_in_the_number_of_lines() -> None:
    """Twice the lines take twice the work in any order. Comparing each line with each would take four times."""
    counts = []
    for number in (500, 1000):
        lines, repeated = [f"line {index}" for index in range(number)], ["a", "b"] * (number // 2)
        mixed = sorted(lines, key=lambda line: line[::-1])
        changed = [line if index % 2 else f"new {line}" for index, line in enumerate(lines)]
        pairs = ((lines, mixed), (lines, lines[::-1]), (lines, changed), (repeated, ["b", *repeated, "c"]))
        counts.append(count_steps(lambda pairs=pairs: [list(find_hunks(*pair)) for pair in pairs]))
    assert 1.5 < counts[1] / counts[0] < 2.5
