"""Long tool results keep head and tail."""

from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import IMAGE, assistant, call, conversation, count, fill, result, system, user
from support.results import truncate_tool_results

from trimtab.proxy.compaction import pool
from trimtab.proxy.compaction.tokenizers.exact import count_pieces
from trimtab.rules.conversation import Conversation, CountTokens, Media, Message, Outcome
from trimtab.rules.policy import Budget, Policy, PreserveSystem, ToolRule, Treatment, Truncation
from trimtab.rules.results.excerpt import LongMessages, may_shorten, shorten_message
from trimtab.rules.results.work import ResultKey, Shortened, Work
from trimtab.rules.text.head_tail import measure_bytes
from trimtab.rules.text.payloads import hide_payloads

LOG = "\n".join(f"line {number} of the build log" for number in range(400))
LINES = st.text(st.sampled_from("ab \né\U0001f600\ud800"), max_size=40)
TEXTS = st.builds(lambda line, times, tail: line * times + tail, LINES, st.integers(0, 60), LINES)


def truth(text: str) -> int:
    """The tokens of a text."""
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
    """The texts may have very many or very few bytes a token. A marker says what is missing."""
    limit = 1000
    for text in (PADDED, "-" * 5000 + "\nERROR\n" + "=" * 5000, " " * 20_000):
        (short,) = _truncate(result("1", text), Budget(4000, limit), truth).texts
        assert limit / 2 <= measure_bytes(short) <= limit
        assert "[trimtab: " in short
        assert truth(short) <= truth(text)


@pytest.mark.parametrize("truncation", Truncation)
def test_what_costs_few_tokens_keeps_a_budget_in_bytes(truncation: Truncation) -> None:
    """If a marker would cost more than the text, the beginning of the text is kept."""
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


SHOWN = Media(IMAGE, 85)


def test_media_of_a_result_stay() -> None:
    """Parts that are not text are kept."""
    before = replace(result("1", LOG), media=(SHOWN,))
    assert _truncate(before, Budget(100)).media == (SHOWN,)
    # The cost of media does not change which savings in the texts are worth it.
    many = replace(before, media=(SHOWN,) * 60, tokens=before.tokens + 90_000)
    assert _truncate(many, Budget(100)).texts == _truncate(before, Budget(100)).texts


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


# Long messages of the assistant and of the system.

LIMIT = 100
POLICY = Policy(max_message_tokens=LIMIT)
LONG = fill("said", 400)


def shorten(*messages: Message, policy: Policy = POLICY) -> Outcome:
    """The outcome after one leading message."""
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


@pytest.mark.parametrize(
    ("message", "policy"),
    [
        (assistant(LONG), Policy()),
        (user(LONG), POLICY),
        (result("a", LONG), POLICY),
        (replace(assistant(LONG), has_fixed_texts=True), POLICY),
        (system(LONG), replace(POLICY, preserve_system=PreserveSystem.ALL)),
        (assistant("short", call("a", arguments=LONG)), POLICY),
    ],
    ids=["default", "user", "result", "fixed", "preserved", "arguments"],
)
def test_what_must_stay_stays(message: Message, policy: Policy) -> None:
    """The same object."""
    assert not may_shorten(message, policy) or shorten_message(message, LIMIT, Work(count)) is message
    before = conversation(system(), message)
    assert shorten(*before.messages, policy=policy).conversation.messages[1] is message


def test_several_texts_share_the_limit() -> None:
    """Unless each would get too little: then they all stay, because they would have to be joined."""
    parts = replace(assistant(LONG), texts=(LONG, "short", LONG), tokens=900)
    short = shorten_message(parts, LIMIT, Work(count))
    assert [text == "short" for text in short.texts] == [False, True, False]
    assert sum(map(count, short.texts)) <= LIMIT
    many = replace(parts, texts=(LONG,) * 9)
    assert shorten_message(many, LIMIT, Work(count)) is many
