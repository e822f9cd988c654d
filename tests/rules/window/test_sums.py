"""Running sums: each is what adding up from the start would give."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.builders import (
    FREE,
    IMAGE,
    assistant,
    call,
    fill,
    measure,
    result,
    split_steps,
    system,
    transcripts,
    user,
    valid_transcripts,
)

from trimtab.rules.conversation import Message, Role, Served, count_leading
from trimtab.rules.policy import Policy
from trimtab.rules.window.cut_decision import Fold
from trimtab.rules.window.prune import PLACEHOLDER_TOKENS, ImageStop, saving_tokens
from trimtab.rules.window.sums import FIRST_SHARE, MAX_OPEN_WORDS, Savings, Spans, Sums


def sum_up(messages: Sequence[Message], *, keeps_systems: bool = False) -> Sums:
    """The sums of a transcript. Its leading system messages are in the head."""
    sums = Sums(count_leading(messages), keeps_systems=keeps_systems)
    for message in messages:
        sums.add(message)
    return sums


def behind_head(messages: Sequence[Message]) -> list[int]:
    """The cost of each message after the head: 0 for the leading ones and the first user message."""
    task = next((index for index, message in enumerate(messages) if message.role == "user"), None)
    leading = count_leading(messages)
    return [0 if index < leading or index == task else one.tokens for index, one in enumerate(messages)]


def test_the_head_costs_nothing() -> None:
    """Leading system messages and the first user message count as 0, wherever the latter is. Later ones count."""
    messages = (system(), assistant("Hello."), user("task"), system("note"), user("more"))
    sums = Sums(1)
    assert [sums.add(message) for message in messages] == behind_head(messages)
    assert (sums.task, list(sums.users)) == (2, [2, 4])
    assert [sums.user_tokens(range(rank, rank + 1)) for rank in (0, 1)] == [messages[2].tokens, messages[4].tokens]


@given(messages=transcripts(), first=st.integers(0, 40), second=st.integers(0, 40))
def test_spans_are_added_up(messages: tuple[Message, ...], first: int, second: int) -> None:
    """For any span, the sums of tokens, system messages and steps equal those computed message by message.

    So does the size of what is forwarded if the results in the span are placeholders and its images are removed, also
    if those of one message are not.
    """
    start, stop = sorted((min(first, len(messages)), min(second, len(messages))))
    sums, tokens = sum_up(messages, keeps_systems=True), behind_head(messages)
    leaders = [cost if one.role is Role.SYSTEM else 0 for cost, one in zip(tokens, messages, strict=True)]
    begins = {step.start for step in split_steps(messages)} if messages else set()
    assert sums.number == len(messages)
    assert sums.between(start, stop) == sum(tokens[start:stop])
    assert sums.systems(start, stop) == sum(leaders[start:stop])
    assert sums.steps(start, stop) == len(begins & set(range(start, stop)))
    bare = [cost and cost - saving_tokens(one) for cost, one in zip(tokens, messages, strict=True)]
    short = [bare[at] if at in begins else min(cost, PLACEHOLDER_TOKENS) for at, cost in enumerate(tokens)]
    assert sums.behind(start, stop, ImageStop(stop)) == sum(short[start:stop]) + sum(tokens[stop:])
    assert sums.behind(start, start, ImageStop(stop)) == sum(bare[start:stop]) + sum(tokens[stop:])
    spared = sum(tokens[start : min(start + 1, stop)]) + sum(bare[start + 1 : stop])
    assert sums.behind(start, start, ImageStop(stop, start)) == spared + sum(tokens[stop:])
    assert sums.behind(stop, start) == sum(tokens[stop:])


@given(messages=valid_transcripts(), tokens=st.integers(0, 4000))
def test_a_step_is_found_by_what_stays_behind_it(messages: tuple[Message, ...], tokens: int) -> None:
    """It is the oldest one after which at most that much stays, or the open one if even that is too long."""
    messages = (user(), *messages)
    sums, costs = sum_up(messages), behind_head(messages)
    begins = [step.start for step in split_steps(messages)]
    fits = [start for start in begins if sum(costs[start:]) <= tokens]
    assert sums.open_step == _find_open_step(messages)
    assert sums.find_step(tokens) == min((fits or begins)[0 if fits else -1], sums.open_step)


def _find_open_step(messages: Sequence[Message]) -> int:
    """The step of the first unanswered result; without one, the newest user messages after the last answer."""
    begins = [step.start for step in split_steps(messages)]
    steps = list(zip(begins, [*begins[1:], len(messages)], strict=True))
    newest = next((rank for rank in range(len(steps) - 1, -1, -1) if messages[begins[rank]].role == "assistant"), -1)
    since = steps[max(newest, 0) :]
    with_results = [start for start, stop in since if stop - start > 1]
    if with_results:
        return with_results[0]
    words = begins[newest + 1 :]
    return words[-MAX_OPEN_WORDS:][0] if words else begins[newest]


@given(messages=valid_transcripts(), share=st.floats(0, 1))
@example(messages=(user("One.", IMAGE), user("Two.", IMAGE)), share=0.0)
def test_a_shortened_message_costs_less_in_every_sum(messages: tuple[Message, ...], share: float) -> None:
    """The sums are as if it had been added with that size, for any message of the open step."""
    messages = (user(), assistant("Yes."), *messages)
    sums = sum_up(messages)
    behind = [index for index in range(sums.open_step, len(messages)) if messages[index].role in {"user", "tool"}]
    for at in (index for index in behind if messages[index].tokens > PLACEHOLDER_TOKENS):
        tokens = max(int(messages[at].tokens * share), PLACEHOLDER_TOKENS)
        media = messages[at].media[: int(len(messages[at].media) * share)]
        messages = (*messages[:at], replace(messages[at], tokens=tokens, media=media), *messages[at + 1 :])
        sums.shorten(at, sums.between(at, at + 1) - tokens, saving_tokens(messages[at]))
    fresh = sum_up(messages)
    for start, stop in pairwise(range(len(messages) + 1)):
        assert sums.between(start, stop) == fresh.between(start, stop)
        assert sums.behind(start, stop) == fresh.behind(start, stop)
        assert sums.find_step(sums.between(start, sums.number)) == fresh.find_step(fresh.between(start, fresh.number))
    ranks = range(len(sums.users))
    assert [sums.user_tokens(ranks[:stop]) for stop in ranks] == [fresh.user_tokens(ranks[:stop]) for stop in ranks]


def test_a_message_of_an_unknown_role_belongs_to_a_call_that_waits_for_it() -> None:
    """It stands in for a result there; a cut before it would part the others from it. Elsewhere it opens one."""
    unknown = Message(Role.OTHER, ("out",), wire_role="ipython")
    ask = assistant(None, call("1"), call("2"))
    sums = sum_up((user("task"), ask, unknown, result("2", "out"), unknown, assistant("Done."), unknown))
    assert [sums.find_start(at) for at in range(7)] == [0, 1, 1, 1, 4, 5, 6]
    assert sum_up((user("task"), ask, unknown, unknown)).open_step == 1


@given(sizes=st.lists(st.integers(1, 60), max_size=30), at=st.integers(0, 60), budget=st.integers(0, 400))
def test_the_newest_user_messages_are_found_within_their_budget(sizes: list[int], at: int, budget: int) -> None:
    """The result is that of walking back from the cut. The very last user message is included, whatever it costs."""
    sums = Sums(0)
    messages = [message for size in sizes for message in (user(fill("u", size)), assistant("a"))]
    for message in messages:
        sums.add(message)
    kept: list[int] = []
    left = budget
    for rank in range(len(sizes) - 1, 0, -1):
        if 2 * rank >= at:
            continue
        left -= messages[2 * rank].tokens
        if left < 0 and rank != len(sizes) - 1:
            break
        kept.insert(0, rank)
    ranks = sums.newest_users(at, budget)
    assert list(ranks) == kept
    assert sums.user_tokens(ranks) == sum(messages[2 * rank].tokens for rank in kept)


def written(text: str, role: str = "user") -> Message:
    return replace(result(None, text, name="read"), wire_role=role)


def test_a_long_row_of_written_results_is_not_open_as_a_whole() -> None:
    """Behind an answer the newest ones are open. Elsewhere each result shows that the one before was answered."""
    row = [written(fill(f"{at}", 90), "system") for at in range(30)]
    assert sum_up((user("task"), assistant("I read."), *row)).open_step == 32 - MAX_OPEN_WORDS
    assert sum_up((user("task"), *row)).open_step == 30
    assert sum_up((user("task"), *row, user("And now?"))).open_step == 30
    mixed = [message for one in row for message in (one, user("Next."))]
    assert sum_up((user("task"), *mixed)).open_step == 59


@given(kinds=st.lists(st.sampled_from("aurst"), max_size=30), role=st.sampled_from(["user", "system"]))
def test_a_cut_never_parts_an_answer_from_the_written_result_behind_it(kinds: list[str], role: str) -> None:
    """Nor does the open step begin between them. A step begins at every other message that is no result of a call."""
    made = {"a": assistant("I read."), "u": user("x"), "r": written("y", role), "s": system("z"), "t": result("1", "w")}
    messages = [made[kind] for kind in kinds]
    sums = sum_up(messages)
    for at, (left, right) in enumerate(pairwise(messages), 1):
        if right is made["r"]:
            starts = left is not made["a"]
            assert sums.steps(at, at + 1) == starts
            assert starts or sums.open_step != at


def test_a_short_first_answer_stands_between_the_task_and_the_first_turn_behind_a_cut() -> None:
    """If the cut removes more than this answer, and it is no call with a result."""
    asked, said = assistant("Which?", call("1")), assistant("Done.")
    sums = sum_up((system(), user("Task."), said, user("More."), said, user("And more.")))
    low = said.tokens * FIRST_SHARE
    assert [sums.find_first_answer(at, low) for at in range(6)] == [[], [], [], [], [], [(2, 3)]]
    assert sums.find_first_answer(5, low - 1) == []
    assert sum_up((user("Task."), asked, result("1"), said, user("More."))).find_first_answer(4, 10 * low) == []


def test_the_opening_is_a_clients_summary_behind_the_head() -> None:
    """It stands before the first call; one in the head stays there anyway."""
    told = "This session is being continued from a previous conversation that ran out of context. All went well."
    messages = (system(told), user("Task."), assistant("Yes."), user(told), assistant(None, call("1")), user(told))
    assert (sum_up(messages).opening, sum_up(messages[:3]).opening) == (3, -1)


@given(messages=transcripts(), shares=st.lists(st.integers(0, 3), min_size=40, max_size=40))
def test_user_messages_that_become_short_are_counted_so(messages: tuple[Message, ...], shares: list[int]) -> None:
    """The sums are those of a transcript in which they were short from the start."""
    long = sum_up(messages)
    saved = {at: messages[at].tokens * shares[at % 40] // 4 for at in long.users if at != long.task}
    saved = {at: min(tokens, messages[at].tokens - saving_tokens(messages[at])) for at, tokens in saved.items()}
    long.shorten_users(saved)
    short = sum_up([replace(one, tokens=one.tokens - saved.get(at, 0)) for at, one in enumerate(messages)])
    for start in range(len(messages) + 1):
        assert long.behind(start, len(messages)) == short.behind(start, len(messages))
        assert long.between(0, start) == short.between(0, start)
        assert not messages or long.find_step(start * 9) == short.find_step(start * 9)
        assert long.newest_users(start, 50) == short.newest_users(start, 50)


# Sums of retrieved memory: each is what adding up from the start would give.


@given(tokens=st.lists(st.integers(0, 50), max_size=12), data=st.data())
def test_sums_equal_those_computed_one_by_one(tokens: list[int], data: st.DataObject) -> None:
    """For any span, and for any amount to save: no more messages than must lose their memory."""
    sums = Savings()
    for index, each in enumerate(tokens):
        sums.add(index, each)
    start = data.draw(st.integers(0, len(tokens)))
    stop = data.draw(st.integers(start, len(tokens)))
    assert sums.saved(start, stop) == sum(tokens[start:stop])
    assert sums.behind(start) == sum(tokens[start:])
    wanted = data.draw(st.integers(1, 300))
    found = sums.find_stop(start, wanted)
    if wanted <= sum(tokens[start:]):
        assert sum(tokens[start:found]) >= wanted > sum(tokens[start : found - 1])
    else:
        assert sum(tokens[found:]) == 0


# Calls that a server answers in a later message.

Messages = list[Message]


def _serve(message: Message, opens: str = "", closes: str = "", goes_on: str = "") -> Message:
    return replace(message, served=Served(tuple(opens), tuple(closes), tuple(goes_on)))


def _bind(messages: Messages) -> list[bool]:
    spans = Spans()
    return [spans.add(message) for message in messages]


A = assistant("a")


@pytest.mark.parametrize(
    ("messages", "bound"),
    [
        ([_serve(A, opens="1"), user(), _serve(A, closes="1"), user()], "0110"),
        ([_serve(A, opens="1"), result("c"), A, result("c"), _serve(A, closes="1"), A], "011110"),
        ([_serve(A, opens="1"), _serve(A, closes="1", opens="2"), _serve(A, closes="2"), A], "0110"),
        ([_serve(A, opens="12"), _serve(A, closes="2"), _serve(A, closes="1"), A], "0110"),
        ([_serve(A, closes="1"), A], "00"),
        ([_serve(A, opens="1"), user(), A, _serve(A, closes="1")], "0100"),
        ([_serve(A, opens="1"), user(), _serve(A, goes_on="1"), result("c"), _serve(A, closes="1"), A], "011110"),
        ([_serve(A, opens="1"), system("note"), A, _serve(A, closes="1"), A], "01110"),
    ],
)
def test_everything_up_to_the_result_belongs_to_the_call(messages: Messages, bound: str) -> None:
    """Until the model, after words of the user, no longer speaks of the call."""
    assert "".join(str(int(one)) for one in _bind(messages)) == bound


@pytest.mark.parametrize("excess", [0, 1])
def test_a_unit_is_one_step_as_long_as_it_alone_fits(excess: int) -> None:
    unit = (_serve(assistant("so"), opens="1"), user(fill("x", 50)), _serve(A, closes="1"))
    sums = Sums(0, longest=sum(message.tokens for message in unit) - excess)
    for message in (user("task"), assistant(fill("before", 500)), *unit):
        sums.add(message)
    assert sums.steps(2, 5) == 1 + excess


def test_a_call_and_a_result_of_unknown_kinds_belong_together() -> None:
    """At the beginning, too, where there is no answer of the model yet."""
    unknown = Message(Role.OTHER, ("step",))
    sums = Sums(0)
    for message in (user("task"), _serve(unknown, opens="1"), _serve(unknown, closes="1")):
        sums.add(message)
    assert sums.open_step == 1


def _play(spans: list[int], tokens: int, reminders: list[Message]) -> list[Message]:
    """Units of the server's calls with rounds of the client's calls and words of the user in between."""
    messages = [system(), user("task")]
    for number, rounds in enumerate(spans):
        key = chr(0x100 + number)
        for turn in range(rounds):
            asked = assistant("so", call(f"c{number}-{turn}"))
            messages.append(_serve(asked, opens="" if turn else key, goes_on=key if turn else ""))
            messages.append(result(f"c{number}-{turn}", fill("out", tokens)))
            messages += [user("Go on."), *reminders] if turn == 0 else []
        messages += [_serve(assistant("sum"), closes=key if rounds else ""), user(f"next {number}")]
    return messages


@pytest.mark.parametrize("reminders", [[], [system("Be brief.")]])
@given(
    spans=st.lists(st.integers(0, 4), min_size=8, max_size=24),
    tokens=st.integers(10, 120),
    max_turns=st.sampled_from([None, 3]),
)
@example(spans=[2] * 24, tokens=100, max_turns=3)
def test_no_cut_parts_a_call_from_its_result(
    reminders: list[Message], spans: list[int], tokens: int, max_turns: int | None
) -> None:
    """Neither the cut in effect nor the next one, nor a kept step, at any length of the transcript."""
    messages = _play(spans, tokens, reminders)
    policy = Policy(context_window=4000, completion_reserve=0, prices=FREE, max_turns=max_turns)
    folded, bound = Fold(measure(messages, policy, limit=3000), policy), _bind(messages)
    for stop, message in enumerate(messages, start=1):
        folded.add(message)
        window = folded.finish()
        places = [place for cut in window.cuts for place in (cut.at, *(at for step in cut.kept_steps for at in step))]
        places += [] if window.next_cut is None else [window.next_cut]
        assert not any(bound[place] for place in places if place < stop)
