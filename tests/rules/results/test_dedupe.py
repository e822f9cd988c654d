"""Repeated results: pointers and diffs, and that their targets are forwarded."""

from collections.abc import Sequence
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
    read,
    rereading,
    result,
    session,
    transcripts,
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
    MIN_LINE_CHARS,
    MIN_SAVED_SHARE,
    SKETCH_LINES,
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
    """Apply the rule to messages."""
    return dedupe_tool_results(conversation(*messages), policy or Policy(), start=start, work=work or Work(count))


def results_of(messages: Sequence[Message]) -> list[Message]:
    """The tool results."""
    return [message for message in messages if message.role is Role.TOOL]


def replaced(outcome: Outcome) -> list[int]:
    """How many results back each result points; 0 for those that are forwarded in full."""
    return [
        read_pointer(message.text) if message.edited else 0 for message in results_of(outcome.conversation.messages)
    ]


def test_an_equal_result_becomes_a_pointer() -> None:
    """One line says how many results back the earlier one is. It names the call if that is another one."""
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


def test_no_diff_is_made_of_results_that_lost_lines() -> None:
    """It would compare the counts in markers, as if the omitted lines had changed."""
    old, new = (f"{TEXT}\n[trimtab: omitted 90 lines (~{tokens} tokens); narrow it]" for tokens in (773, 774))
    messages = [replace(message, edited=message.role == "tool") for message in steps(old, new)]
    assert dedupe(*messages).decisions == ()
    assert dedupe(*steps(old, new)).decisions


@pytest.mark.parametrize("edited", [1, 3])
def test_a_pointer_says_no_more_of_shortened_results_than_is_known(edited: int) -> None:
    """The omitted parts may differ. The same holds for a diff."""
    for text in (TEXT, CHANGED):
        messages = steps(TEXT, text)
        messages[edited] = replace(messages[edited], edited=True)
        first = dedupe(*messages).conversation.messages[-1].text
        assert first.startswith(
            "[trimtab: same as the tool result 1 before this, in the parts shown, from the same call"
        )


def test_a_nearly_equal_result_becomes_a_diff() -> None:
    """The header says what it is; then the lines, with their places."""
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


def test_the_decision_says_what_was_done() -> None:
    """It says how many results, the tokens before and after, and the first message that changed."""
    before = steps(TEXT, CHANGED, "other", TEXT)
    outcome = dedupe(*before)
    (decision,) = outcome.decisions
    assert (decision.rule, decision.messages, decision.first_changed) == ("dedupe", 2, 3)
    assert decision.tokens_after == outcome.conversation.tokens < decision.tokens_before
    assert all(message.digest == one.digest for message, one in zip(outcome.conversation.messages, before, strict=True))


def test_pointers_point_to_what_stands_in_full() -> None:
    """Never to another pointer. A pointer refers to the first of equal results, a diff to the newest one in full."""
    assert replaced(dedupe(*steps(TEXT, TEXT, TEXT, CHANGED, CHANGED))) == [0, 1, 2, 3, 4]
    other = listing(2)
    assert replaced(dedupe(*steps(TEXT, other, listing(2, 3), TEXT))) == [0, 0, 1, 3]


def test_only_what_saves_half_is_replaced() -> None:
    """A diff that is nearly as long as the text is harder to read than the text."""
    lines = TEXT.split("\n")
    half = "\n".join(
        line if number % 2 else f"now something quite different: {number}" for number, line in enumerate(lines)
    )
    assert replaced(dedupe(*steps(TEXT, half))) == [0, 0]
    assert replaced(dedupe(*steps(TEXT, half, half + "\nmore"))) == [0, 0, 1]


@given(messages=transcripts())
def test_each_replacement_saves_half(messages: tuple[Message, ...]) -> None:
    """Nothing grows, and nothing small is touched."""
    sent = dedupe(*messages).conversation.messages
    for before, after in zip(messages, sent, strict=True):
        if after is not before:
            assert sum(map(len, before.texts)) > MIN_CHARS
            assert before.tokens - after.tokens >= before.tokens * MIN_SAVED_SHARE
            assert after.tokens == before.tokens - sum(map(count, before.texts)) + count(after.text)


def test_what_stands_before_the_start_is_not_seen() -> None:
    """Nothing points to a pruned or cut result. The next equal one is forwarded in full, and later ones point to it."""
    messages = steps(TEXT, TEXT, TEXT)
    assert replaced(dedupe(*messages, start=2)) == [0, 0, 1]
    assert replaced(dedupe(*messages, start=4)) == [0, 0, 0]
    assert replaced(dedupe(*messages, start=6)) == [0, 0, 0]


def test_results_of_one_step_do_not_point_to_each_other() -> None:
    """The newest step may still be shortened. So its results point only to results of earlier steps."""
    together = [assistant(None, call("a"), call("b"), call("c"))]
    together += [result("a", TEXT), result("b", TEXT), result("c", CHANGED)]
    assert replaced(dedupe(*together)) == [0, 0, 0]
    assert replaced(dedupe(*together, *steps(TEXT, CHANGED))) == [0, 0, 0, 3, 2]


def test_exempt_results_are_targets_only() -> None:
    """They stay unchanged, and others point to them."""
    policy = Policy(tools=(ToolRule("look", Treatment(Budget(300), is_exempt=True)),))
    parts = (steps(TEXT), steps(TEXT, name="look"), steps(TEXT), steps(CHANGED, name="look"))
    assert replaced(dedupe(*chain(*parts), policy=policy)) == [0, 0, 2, 0]
    assert replaced(dedupe(*chain(*parts[1:]), policy=policy)) == [0, 1, 0]


@pytest.mark.parametrize(
    "twice",
    [
        result("c0", fill("short", MIN_CHARS // 4)),
        result("c0", "x" * (MAX_CHARS + 1)),
        read(
            {
                "role": "tool",
                "tool_call_id": "c0",
                "content": [{"type": "text", "text": TEXT}, {"type": "image_url", "image_url": {"url": "data:,"}}],
            }
        ),
        result("c0", f"{POINTER}1 back]\n{TEXT}"),
        user(TEXT),
        assistant(TEXT),
        user(TEXT, IMAGE),
    ],
)
def test_what_is_left_alone(twice: Message) -> None:
    """Small and huge results, results with media or with trimtab's own text, and all other messages."""
    before = conversation(assistant(None, call("c0")), twice, assistant(None, call("c0")), replace(twice))
    assert dedupe_tool_results(before, Policy(), start=0, work=Work(count)).conversation is before


def test_a_large_text_is_compared_as_a_whole_only() -> None:
    """If a text is too long or its lines are too short, only an equal text is replaced."""
    large = "\n".join(f"a line of a large file: {number}" for number in range(MAX_DIFF_CHARS // 24))
    assert replaced(dedupe(*steps(large, large + "\nmore", large))) == [0, 0, 2]
    narrow = "\n".join(f"{number}" for number in range(2000))
    assert replaced(dedupe(*steps(narrow, narrow + "\nmore", narrow))) == [0, 0, 2]


def test_several_texts_are_equal_only_one_by_one() -> None:
    """Two parts do not equal one text with the same content, and there is no diff of them."""
    parts = (TEXT, CHANGED)
    assert replaced(dedupe(*steps(parts, parts))) == [0, 1]
    assert replaced(dedupe(*steps(parts, "\n".join(parts), parts, (*parts, "more"), parts[::-1]))) == [0, 0, 2, 0, 0]


def test_legacy_results_are_results() -> None:
    """They are counted and replaced. If the call is not known, the pointer has only the number of results."""
    outcome = dedupe(assistant("x"), function_result(TEXT), assistant("y"), function_result(TEXT))
    assert outcome.conversation.messages[-1].text == "[trimtab: same as the tool result 1 before this]"


def test_double_ids_do_not_name_the_wrong_call() -> None:
    """If two calls have the same id, the first result answers the first one. Only positions tell results apart."""
    pair = assistant(None, call("a", "read", '{"path":"1"}'), call("a", "list", '{"path":"2"}'))
    results = [result("a", TEXT), result("a", listing(2))]
    more = [pair, result("a", listing(3)), result("a", listing(4))]
    outcome = dedupe(pair, *results, *more, *steps(listing(2), TEXT, listing(4)))
    assert [message.text for message in outcome.conversation.messages[-5::2]] == [
        '[trimtab: same as the tool result 3 before this, from list {"path":"2"}]',
        '[trimtab: same as the tool result 5 before this, from read {"path":"1"}]',
        '[trimtab: same as the tool result 3 before this, from list {"path":"2"}]',
    ]


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


def test_what_differs_in_lone_surrogates_alone_differs() -> None:
    """Two different lone surrogates are not the same text, though UTF-8 has no bytes for either."""
    texts = [TEXT, *(f"{TEXT}\n{half}" for half in ("\ud800", "\udfff"))]
    messages = steps(*texts[:1] * 3)
    messages[1::2] = [replace(message, texts=(text,)) for message, text in zip(messages[1::2], texts, strict=True)]
    outcome = dedupe(*messages)
    assert replaced(outcome) == [0, 1, 2]
    for message, text in zip(results_of(outcome.conversation.messages)[1:], texts[1:], strict=True):
        assert expand([TEXT], message.text) == [text]


def test_caches_change_nothing_but_the_time() -> None:
    """The outcome is the same with caches, and their entries are used."""
    messages = rereading(20)
    work = Work(count)
    assert dedupe(*messages, work=work) == dedupe(*messages) == dedupe(*messages, work=work)
    texts = (TEXT, CHANGED)
    left, right = (sketch_text(text).digest for text in texts)
    planted = Work(count, diffs={(left, right): "planted"})
    assert dedupe(*steps(*texts), work=planted).conversation.messages[-1].text.endswith("diff:]\nplanted")
    planted = Work(count, sketches={text: Sketch(b"", ()) for text in texts})
    assert replaced(dedupe(*steps(*texts), work=planted)) == [0, 0]


def bounded(max_chars: int, sketches: dict[str, Sketch], diffs: dict[tuple[bytes, bytes], str]) -> Work:
    """Work that may process this many new characters."""
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


def test_each_result_is_held_against_one_other_at_most() -> None:
    """However many are similar. Otherwise the time would grow with the square of their number."""
    texts = [
        listing(1, 3, lines=40) + "\n" + "\n".join(f"own {number} {line}" * 3 for line in range(45))
        for number in range(60)
    ]
    diffs = dict[tuple[bytes, bytes], str]()
    assert not any(replaced(dedupe(*steps(*texts), work=Work(count, diffs=diffs))))
    assert len(diffs) == len(texts) - 1


def test_a_diff_that_is_no_shorter_is_not_remembered() -> None:
    """The cache only holds that there is no diff."""
    lines = [f"{number}: a line that both of them have" for number in range(9)]
    unlike = ["\n".join([*lines, *(f"{number}: a line of {one} alone" for number in range(15))]) for one in "xy"]
    diffs = dict[tuple[bytes, bytes], str]()
    assert replaced(dedupe(*steps(*unlike), work=Work(count, diffs=diffs))) == [0, 0]
    assert list(diffs.values()) == [""]


def _count_dedupe_steps(number: int) -> int:
    """Steps to process this many results without similar ones."""
    conversation = steps(*(listing(index, index, lines=8) for index in range(number)))
    return count_steps(lambda: dedupe(*conversation))


def test_the_work_goes_by_the_number_of_results() -> None:
    """Twice the results are twice the work. Comparing each result with each would be four times the work."""
    assert 1.5 < _count_dedupe_steps(400) / _count_dedupe_steps(200) < 2.5


def test_sessions_without_repeats_are_left_alone() -> None:
    """Results that differ in each line are forwarded unchanged."""
    before = conversation(*session(20, result_tokens=100))
    assert dedupe_tool_results(before, Policy(), start=0, work=Work(count)).conversation is before


def test_a_call_that_names_what_is_excluded_keeps_its_result() -> None:
    """Other results of this tool are replaced."""
    policy = Policy(tools=(ToolRule("read", Treatment(Budget(300), exempt_arguments=("*.md",))),))
    for path, pointers in (("AGENTS.md", [0, 0]), ("a.log", [0, 1])):
        messages = (*steps(TEXT, name="run"), *steps(TEXT, arguments=f'{{"path":"{path}"}}'))
        assert replaced(dedupe(*messages, policy=policy)) == pointers


@pytest.mark.parametrize(("tool", "policy_wide", "expected"), [(True, False, [0, 1]), (False, True, [0, 0])])
def test_what_a_tool_says_of_deduplication_goes_before_the_policy(
    tool: bool,  # noqa: FBT001 - a parameter of pytest
    policy_wide: bool,  # noqa: FBT001
    expected: list[int],
) -> None:
    """The policy holds for all other tools."""
    policy = Policy(dedupe=policy_wide, tools=(ToolRule("read", Treatment(Budget(300), dedupe=tool)),))
    assert replaced(dedupe(*steps(TEXT, TEXT), policy=policy)) == expected
    assert replaced(dedupe(*steps(TEXT, TEXT, name="run"), policy=policy)) == [0, int(policy_wide)]


def test_a_result_without_a_call_is_treated_by_its_own_name() -> None:
    """Legacy results name a tool."""
    policy = Policy(tools=(ToolRule("run", Treatment(Budget(300), is_exempt=True)),))
    messages = [one for _ in range(2) for one in (assistant("on"), function_result(TEXT))]
    assert replaced(dedupe(*messages, policy=policy)) == [0, 0]
    assert replaced(dedupe(*messages)) == [0, 1]


# The index of earlier results.


def compared(number: int, text: str) -> Compared:
    """A result without a call."""
    return Compared(number, result(f"c{number}", text), None, sketch_text(text))


def test_the_first_of_equal_results_is_found() -> None:
    """The target of a pointer does not change when more equal results come."""
    index, results = Index(), [compared(number, listing(1)) for number in range(3)]
    for one in results:
        index.add(one)
    assert index.find_equal(result("d", listing(1))) is results[0]
    assert index.find_equal(result("d", listing(2))) is None


def test_the_newest_of_those_that_share_the_most_lines_is_found() -> None:
    """A file that is read again is most similar to its latest version."""
    index, results = Index(), [compared(number, listing(1, number)) for number in range(3)]
    for one in results:
        index.add(one)
    assert index.find_near(sketch_text(listing(1, 9))) is results[2]


def test_little_in_common_is_nothing() -> None:
    """Few lines in common, or no sketch: nothing is found."""
    index = Index()
    index.add(compared(1, listing(1)))
    one_shared = listing(1).splitlines()[0] + "\n" + listing(2)
    assert index.find_near(sketch_text(one_shared)) is None
    assert index.find_near(sketch_text(listing(3))) is None
    assert index.find_near(sketch_text("one line")) is None
    assert index.find_near(None) is None


# Diffs: exact for any lines, in a form that models know.

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
    """Changed, inserted and removed lines, each with its place and number in both texts."""
    old = "one\ntwo\nthree\nfour\nfive\nsix"
    new = "zero\none\ntwo\n3\nfour\nsix"
    assert write_diff(old, new) == "@@ -0,0 +1,1 @@\n+zero\n@@ -3,1 +4,1 @@\n-three\n+3\n@@ -5,1 +5,0 @@\n-five"


def test_the_end_of_the_text_is_exact() -> None:
    """A line feed more or less at the end is a line; so is a carriage return in a line."""
    assert write_diff("a\nb", "a\nb\n") == "@@ -2,0 +3,1 @@\n+"
    assert write_diff("a\nb\n", "a\nb") == "@@ -3,1 +2,0 @@\n-"
    assert write_diff("a\r\nb", "a\nb") == "@@ -1,1 +1,1 @@\n-a\r\n+a"


def _count_diff_steps(number: int) -> int:
    """The steps for reordered, reversed, half changed and repeated lines."""
    lines = [f"line {index}" for index in range(number)]
    mixed = sorted(lines, key=lambda line: line[::-1])
    repeated = ["a", "b"] * (number // 2)
    changed = [line if index % 2 else f"new {line}" for index, line in enumerate(lines)]
    pairs = ((lines, mixed), (lines, lines[::-1]), (lines, changed), (repeated, ["b", *repeated, "c"]))
    return count_steps(lambda: [list(find_hunks(left, right)) for left, right in pairs])


def test_the_work_is_linear_in_the_number_of_lines() -> None:
    """Twice the lines take twice the work in any order. Comparing each line with each would take four times."""
    assert 1.5 < _count_diff_steps(2000) / _count_diff_steps(1000) < 2.5


# Sketches show that two texts share lines.


def test_candidates_are_the_same_on_every_machine() -> None:
    """They use checksums, not Python's own hashes, which differ between processes."""
    sketch = sketch_text("a line that is long enough\n\nanother line, long enough")
    assert sketch.lines == (1631350595, 3343473193)
    assert sketch.digest.hex().startswith("3acaabbd9e6ff073")
    assert sketch_text("no line break").lines == ()


def test_texts_that_share_most_lines_share_most_of_their_sketches() -> None:
    """The differing line may be anywhere. Texts without a common line share nothing."""
    lines = [f"{number}: a line that is long enough to count" for number in range(100)]
    sketch = set(sketch_text("\n".join(lines)).lines)
    assert len(sketch) == SKETCH_LINES
    for index in range(0, 100, 7):
        changed = "\n".join([*lines[:index], "another line", *lines[index + 1 :]])
        assert len(sketch & set(sketch_text(changed).lines)) >= SKETCH_LINES - 1
    other = sketch_text("\n".join(line.upper() for line in lines))
    assert not sketch & set(other.lines)


def test_a_text_of_short_lines_has_no_sketch() -> None:
    """Its length in characters does not bound the number of lines."""
    short, long = "\n".join(["a"] * 99), "\n".join(["a" * MIN_LINE_CHARS] * 99)
    assert (sketch_text(short).lines, len(sketch_text(long).lines)) == ((), 1)
    assert sketch_text(short).digest != sketch_text(long).digest
