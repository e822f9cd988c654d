"""Long tool results keep head and tail."""

import re
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, call, conversation, count, count_words, fill, result, system, user
from support.results import shorten_text, truncate_tool_results

from trimtab.proxy.compaction import pool
from trimtab.proxy.compaction.tokenizers.exact import count_pieces
from trimtab.rules.conversation import Conversation, CountTokens, Message, Outcome
from trimtab.rules.pipeline.order import plan
from trimtab.rules.policy import Budget, Policy, PreserveSystem, ToolRule, Treatment, Truncation
from trimtab.rules.results.excerpt import (
    Facts,
    LongMessages,
    _shorten_within,
    excerpt_text,
    excerpt_written,
    may_shorten,
    share_budget,
    shorten_message,
)
from trimtab.rules.results.work import ResultKey, Shortened, Work
from trimtab.rules.text.head_tail import measure_bytes
from trimtab.rules.text.payloads import hide_payloads

LOG = "\n".join(f"line {number} of the build log" for number in range(400))
LINES = st.text(st.sampled_from("ab \né\U0001f600\ud800"), max_size=40)
TEXTS = st.builds(lambda line, times, tail: line * times + tail, LINES, st.integers(0, 60), LINES)


def truth(text: str) -> int:
    return _load()(text)


@cache
def _load() -> CountTokens:
    return count_pieces(pool.load_encoding("o200k_base"))


@given(
    texts=st.lists(TEXTS, min_size=1, max_size=4), tokens=st.integers(64, 300), limit=st.none() | st.integers(256, 999)
)
def test_a_result_keeps_its_budget(texts: list[str], tokens: int, limit: int | None) -> None:
    """The texts of a result together stay within the budget, in tokens and in bytes, unless the marker costs more."""
    before = result("1", *(text.replace("\ud800", "") for text in texts))
    short = _truncate(before, Budget(tokens, limit))
    assert short is before or sum(map(count, short.texts)) <= tokens
    assert short is before or limit is None or sum(map(measure_bytes, short.texts)) <= limit
    # A text over its budget stays only if little would be saved.
    assert short is not before or sum(map(count, short.texts)) <= tokens + 0.05 * before.tokens
    assert short.tokens == before.tokens - sum(map(count, before.texts)) + sum(map(count, short.texts))
    assert short.original_tokens == before.tokens
    assert replace(short, texts=before.texts, tokens=before.tokens, saved_tokens=0, edited=False) == before


def test_short_parts_stay_whole() -> None:
    """The budget is taken from the long ones. None becomes empty, however many there are: upstreams refuse that."""
    short, long = fill("short", 20), fill("long", 500)
    texts = _truncate(result("1", long, short, long), Budget(220)).texts
    assert texts[1] == short
    assert [80 < count(text) <= 110 for text in (texts[0], texts[2])] == [True, True]
    before = result("1", *(f"a line of search result {number}" for number in range(100)))
    assert all(_truncate(before, Budget(64)).texts)


def test_texts_that_fit_their_budget_together_stay() -> None:
    """However little that leaves for each, and also if one has most of the tokens and others most of the bytes."""
    for texts, budget in (
        (("a", "b", "c"), Budget(3)),
        (("a b " * 30, "c" * 500, "d" * 360), Budget(100, 1000)),
    ):
        assert share_budget(texts, budget, count_words, lambda *_: "") is texts


def test_each_tools_results_have_its_own_budget() -> None:
    """Whatever budgets other tools have. The reason names no budget."""
    rules = (ToolRule("small", Treatment(Budget(100))),)
    calls = (call("a", "small"), call("b", "large"))
    messages = (assistant(None, *calls), result("a", fill("a", 999)), result("b", fill("b", 999)))
    policy = Policy(result_budget=Budget(300), tools=rules)
    outcome = truncate_tool_results(conversation(*messages), policy=policy, work=Work(count))
    small, large = (count(message.text) for message in outcome.conversation.messages[1:])
    assert 50 < small <= 100
    assert 250 < large <= 300
    assert outcome.decisions[0].reason == "2 tool results over their limits"


PADDED = "".join(f"{number:<6}|{f'n{number}':<250}|{'':<250}|\n" for number in range(40))


def test_a_budget_in_bytes_is_used() -> None:
    """Whatever bytes a token has."""
    limit = 1000
    for text in (PADDED, "-" * 2000 + "\nERROR\n" + "=" * 2000, " " * 6000):
        (short,) = _truncate(result("1", text), Budget(4000, limit), truth).texts
        assert limit / 2 <= measure_bytes(short) <= limit
        assert "[trimtab: " in short
        assert truth(short) <= truth(text)


def test_where_a_marker_would_cost_more_than_the_text_its_beginning_is_kept() -> None:
    for truncation in Truncation:
        text = "=" * 400
        policy = Policy(result_budget=Budget(4000, 256), truncation=truncation)
        before = conversation(result("1", text))
        (after,) = truncate_tool_results(before, policy=policy, work=Work(truth)).conversation.messages
        assert after.text == text[:256]
        assert truth(after.text) <= truth(text)


FILE = b64encode(bytes(range(256)) * 40).decode()
SHAPES = [
    f"Saved.\n![plan](data:image/png;base64,{FILE})\nDone.",
    orjson.dumps([{"type": "image", "data": f"data:image/png;base64,{FILE}"}] * 6).decode(),
    "\n".join(FILE[at : at + 76] for at in range(0, len(FILE), 76)),
]


@pytest.mark.parametrize("truncation", Truncation)
@pytest.mark.parametrize("text", SHAPES)
@pytest.mark.parametrize("around", ["", LOG])
def test_no_part_of_a_file_is_left(truncation: Truncation, text: str, around: str) -> None:
    """A file that is written out becomes one marker before anything is chosen. Within the budget, it stays."""
    before = result("1", "\n".join(filter(None, (around, text, around))))
    policy = Policy(result_budget=Budget(400), truncation=truncation)
    (after,) = truncate_tool_results(conversation(before), policy=policy, work=Work(count)).conversation.messages
    left = after.text
    assert not any(FILE[at : at + 24] in left for at in range(0, len(FILE) - 24, 24))
    assert around or ", omitted]" in left
    assert _truncate(before, Budget(999_999)) is before


@pytest.mark.parametrize("truncation", Truncation)
@pytest.mark.parametrize("text", SHAPES[:2])
@pytest.mark.parametrize("budget", [Budget(150), Budget(300, 900)])
def test_what_is_left_is_that_of_the_text_with_the_marker(truncation: Truncation, text: str, budget: Budget) -> None:
    """The budget is not measured by the file, which may have other bytes a token."""
    whole = f"{LOG}\n{text}\n{LOG}"
    policy = Policy(result_budget=budget, truncation=truncation)
    left = []
    for each in (whole, hide_payloads(whole).text):
        before = conversation(result("1", each))
        (after,) = truncate_tool_results(before, policy=policy, work=Work(truth)).conversation.messages
        left.append(after.text)
    assert left[0] == left[1]


def test_a_memo_changes_nothing() -> None:
    """With a cache the outcome is the same, and what is in the cache is used."""
    memo = {}
    budget = Budget(100)
    before = conversation(user(), result("1", LOG), result("2", fill("fits by words", 98)))
    plain = _shorten(before, budget)
    assert _shorten(before, budget, memo) == plain
    kept = plain.conversation.messages[1]
    saved = before.messages[1].tokens - kept.tokens
    assert Shortened(kept.texts, saved) in memo.values()
    copies = conversation(*(replace(message, raw=bytes(bytearray(message.raw or b""))) for message in before.messages))
    again = _shorten(copies, budget, memo, _refuse)
    assert again == plain
    # The codec finds a message's place by the identity of its bytes: they must be those of this request.
    assert all(new.raw is old.raw for new, old in zip(again.conversation.messages, copies.messages, strict=True))


def _refuse(text: str) -> int:
    raise AssertionError(text)


def _shorten(
    before: Conversation,
    budget: Budget,
    memo: dict[ResultKey, Shortened] | None = None,
    counted: Callable[[str], int] = count,
) -> Outcome:
    return truncate_tool_results(
        before, policy=Policy(result_budget=budget), work=Work(counted, {} if memo is None else memo)
    )


def _truncate(message: Message, budget: Budget, counted: Callable[[str], int] = count) -> Message:
    return _shorten(conversation(message), budget, counted=counted).conversation.messages[0]


LIMIT = 100
POLICY = Policy(max_message_tokens=LIMIT)
LONG = fill("said", 400)


def shorten(*messages: Message, policy: Policy = POLICY) -> Outcome:
    long = LongMessages(1)
    long.extend(messages, policy, Work(count))
    return long.apply(conversation(*messages))


def test_head_and_tail_stay_with_a_marker() -> None:
    """The call stays, too. The decision tells what was saved."""
    messages = (system(LONG), user(LONG), assistant(LONG, call("a")), result("a", LONG), system(LONG))
    outcome = shorten(*messages)
    sent = outcome.conversation.messages
    assert [new is old for new, old in zip(sent, messages, strict=True)] == [True, True, False, True, False]
    (text,) = sent[2].texts
    assert text.startswith("said all of this")
    assert "[trimtab: omitted " in text
    assert count(text) <= LIMIT
    assert sent[2].tool_calls == messages[2].tool_calls
    (decision,) = outcome.decisions
    assert (decision.rule, decision.messages, decision.first_changed) == ("shorten", 2, 2)
    assert decision.saved_tokens == conversation(*messages).tokens - outcome.conversation.tokens


def test_what_must_stay_stays() -> None:
    """Several texts share the limit, unless each would get too little: then they would have to be joined."""
    for message, policy in [
        (assistant(LONG), Policy()),
        (user(LONG), POLICY),
        (result("a", LONG), POLICY),
        (replace(assistant(LONG), has_fixed_texts=True), POLICY),
        (replace(assistant(LONG), keep=True), POLICY),
        (system(LONG), replace(POLICY, preserve_system=PreserveSystem.ALL)),
        (assistant("short", call("a", arguments=LONG)), POLICY),
    ]:
        assert not may_shorten(message, policy) or shorten_message(message, LIMIT, Work(count)) is message
        before = conversation(system(), message)
        assert shorten(*before.messages, policy=policy).conversation.messages[1] is message
    parts = replace(assistant(LONG), texts=(LONG, "short", LONG), tokens=900)
    short = shorten_message(parts, LIMIT, Work(count))
    assert [text == "short" for text in short.texts] == [False, True, False]
    assert sum(map(count, short.texts)) <= LIMIT
    many = replace(parts, texts=(LONG,) * 9)
    assert shorten_message(many, LIMIT, Work(count)) is many


def test_a_short_chat_is_decided_in_the_same_way() -> None:
    """Although such a chat is otherwise left alone without a look at its texts."""
    before = conversation(system(), user("Tell me."), assistant(LONG), user("More."))
    planned = plan(before, replace(POLICY, context_window=128_000), count=count)
    assert [decision.rule for decision in planned.decisions] == ["shorten"]
    assert plan(before, Policy(), count=count).is_empty


PIECES = [
    "a", " ", "\n", "\r\n", "error: ", "FAILED tests/test_a.py::test_b\n", "[", "{", '"', "\\", "漢字", "e\u0301",
    "\ud800", "\0", "\t", "0123456789", "Traceback (most recent call last)\n", '  File "a.py", line 3, in b\n',
    "diff --git a b\n", "@@ -1 +1 @@\n", "+x\n", "a/b.py:12: def f():\n", "def f(x):\n", "# Heading\n", "<html>\n",
    "commit 0123abc\n", "1,", "/", "[trimtab: omitted 12 lines (~40 tokens)]\n",
]  # fmt: skip
ANY_TEXTS = st.builds(
    lambda pieces, times: "".join(pieces) * times,
    st.lists(st.sampled_from(PIECES), max_size=20),
    st.sampled_from([1, 3, 40]),
)
STEPS = [f"step {number}: {'abcdefgh'[number % 8]} was done, {number % 97} of them" for number in range(1500)]
STEPS[700] = "src/core.c:14:3: error: 'flag' undeclared"
STEPS[1100] = "a very different kind of line, seen once"
STEPS_LOG = "\n".join(STEPS) + "\n"
_FIRST = re.compile(
    r"\[trimtab: omitted lines? (\d+)(?:-(\d+))? \(~(\d+) tokens\); call the tool again for these lines\]"
)
_LATER = re.compile(r"\[trimtab: omitted lines? (\d+)(?:-(\d+))? \(~(\d+) tokens\)\]")


@pytest.mark.parametrize("measure", [count, count_words])
@given(text=ANY_TEXTS, limit=st.one_of(st.integers(0, 63), st.integers(64, 400)))
def test_a_result_never_exceeds_its_budget(measure: CountTokens, text: str, limit: int) -> None:
    """For any text: unchanged if it fits, the same outcome each time, and a second pass changes nothing."""
    short = shorten_text(text, limit, measure)
    assert measure(short) <= limit
    assert measure(excerpt_written(text, limit, measure)) <= limit
    assert short == shorten_text(text, limit, measure)
    assert shorten_text(short, limit, measure) is short
    if measure(text) <= limit:
        assert short is text


@given(
    st.lists(
        st.sampled_from(["x", "error: no such file", "", "word " * 9, "漢" * 20, "1,2,3", "  at f()"]), max_size=30
    ),
    st.integers(20, 40),
    st.integers(100, 400),
)
def test_lines_and_markers_cover_the_text(some: list[str], times: int, limit: int) -> None:
    """Each kept line is unchanged and has the number that the markers imply. Each marker covers exactly its gap."""
    lines = some * times
    short = shorten_text("".join(f"{line}\n" for line in lines), limit, count)
    number = 1
    for line in short.splitlines():
        marker = _read_marker(line)
        if marker is None:
            assert lines[number - 1] == line
            number += 1
            continue
        first, last, tokens = marker
        missing = count("".join(f"{line}\n" for line in lines[first - 1 : last]))
        assert first == number
        assert abs(tokens - missing) <= 3 + missing * 0.1
        number = last + 1
    assert number == len(lines) + 1


def _read_marker(line: str) -> tuple[int, int, int] | None:
    """The first and the last line that are missing, and their tokens."""
    if found := _FIRST.fullmatch(line) or _LATER.fullmatch(line):
        return int(found[1]), int(found[2] or found[1]), int(found[3])
    return None


def test_most_of_the_budget_is_used() -> None:
    """The first marker says how to get at what is missing; later ones are short."""
    for limit in (200, 500, 1000, 4000):
        short = excerpt_text(STEPS_LOG, limit, count, Facts())
        assert short is not None
        assert limit * 0.9 <= count(short) <= limit
    short = excerpt_text(STEPS_LOG, 400, count, Facts())
    markers = [line for line in short.split("\n") if line.startswith("[trimtab: ")]
    assert _FIRST.fullmatch(markers[0])
    assert len(markers) > 1
    assert all(map(_LATER.fullmatch, markers[1:]))


def test_what_repeats_without_end_is_shortened() -> None:
    """To the budget, and some of the text stays: of one long line, both ends."""
    for unit in ["\n", " ", "a", "[", '"', "\\", "\r", "\0", "\ud800", "\u0301", "error\n", "a/", "_", '{"a":']:
        text = unit * (12_000 // len(unit))
        short = shorten_text(text, 200, count)
        assert short
        assert count(short) <= 200
    for sign in ["\u6f22", "a"]:
        text = f"begin{sign * 6000}end"
        short = shorten_text(text, 400, count)
        assert short.startswith("begin")
        assert short.endswith("end")
        assert count(short) > 250


def test_markers_name_lines_as_the_reader_can_ask_for_them() -> None:
    """They use the numbers that the text shows. Within a string of JSON, they use none."""
    text = "".join(
        f"{number}\tdef function_{number}(value):\n{number + 1}\t    return value\n" for number in range(1001, 3001, 2)
    )
    first = re.search(
        r"omitted lines (\d+)-(\d+) \(~\d+ tokens\); call the tool again for these lines\]",
        shorten_text(text, 500, count),
    )
    assert 1001 < int(first[1]) < int(first[2]) <= 3000
    log = "".join(f"poll {number}: done\n" for number in range(3000))
    assert "call the tool again for these lines]" in shorten_text(log, 300, count)
    short = orjson.loads(shorten_text(orjson.dumps({"log": log}).decode(), 300, count))["log"]
    assert "call the tool again for this part]" in short
    assert not re.search(r"trimtab: omitted lines? \d", short)


def test_no_change_of_a_diff_stands_without_its_file() -> None:
    """The last file named before a kept change is the file of that change."""
    files = [
        f"diff --git a/f{file}.py b/f{file}.py\n--- a/f{file}.py\n+++ b/f{file}.py\n"
        + "".join(f"@@ -{hunk * 9} +{hunk * 9} @@\n-old {file} {hunk}\n+new {file} {hunk}\n" for hunk in range(12))
        for file in range(40)
    ]
    file = ""
    for line in shorten_text("".join(files), 1000, count).splitlines():
        file = line.split("/f")[1].split(".py")[0] if line.startswith("diff --git") else file
        if line.startswith(("-old", "+new")):
            assert line.split()[1] == file


def test_a_string_of_json_loses_its_file_only_if_it_does_not_fit() -> None:
    text = f"Saved: {b64encode(bytes(range(256))).decode()}"
    shorten = _shorten_within(count, Facts())
    assert shorten(text, count(text)) == text
    assert shorten(text, count(text) - 1) == "Saved: [trimtab: data, 256 bytes in Base64, omitted]"
