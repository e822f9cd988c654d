"""The laws of the text that code carries over a cut, through the whole pipeline: when it changes, and when not."""

from collections.abc import Sequence
from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from support import policies
from support.builders import (
    FREE,
    KeptStates,
    assistant,
    call,
    conversation,
    count,
    result,
    system,
    user,
    write_all,
)
from support.policies import by_economy, with_any_waters

from trimtab.rules.conversation import Message
from trimtab.rules.economy import Economy
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.policy import OverflowStrategy, Policy, Prices, SummaryRole
from trimtab.rules.summary.request import Summary
from trimtab.rules.text.markers import NAMES_TITLE, SUMMARY_END

MANY = settings(max_examples=max(20, settings.default.max_examples // 2))
"""Each case runs the whole pipeline at each request of a session."""
POLICY = replace(policies.POLICY, context_window=6000, dedupe=True)
GUIDE = "# How we work\nRun `make harbour-check` before each commit.\nNever touch src/legacy/anchor.py.\n"

Row = tuple[str, int]
ROWS = st.tuples(st.sampled_from(["read", "read", "write", "run", "todo", "guide", "say"]), st.integers(0, 9))


def policies_of_all_economies() -> st.SearchStrategy[Policy]:
    """Policies for small windows, with the waters of every economy, and with arbitrary ones."""
    drawn = st.builds(
        replace,
        st.just(POLICY),
        context_window=st.sampled_from([2400, 6000, 9000]),
        overflow_strategy=st.sampled_from(OverflowStrategy),
        prices=st.sampled_from([FREE, Prices(), Prices(1, 0.001, 4)]),
        summary_role=st.sampled_from(SummaryRole),
        summary_min_steps=st.sampled_from([1, 4]),
    )
    return with_any_waters(drawn)


def work(rows: Sequence[Row], first: int = 0) -> tuple[Message, ...]:
    """Steps of an agent that reads, writes and runs things with names, and keeps a task list."""
    return tuple(message for number, row in enumerate(rows, start=first) for message in _messages(number, *row))


def _messages(number: int, kind: str, which: int) -> list[Message]:
    path, ticket = f"src/harbour/part_{which}.py", f"HB-{1000 + number * 7 + which}"
    if kind == "say":
        return [user(f"Mind {ticket} while you are at {path}, and keep `mooring_line_{which}`.")]
    name, arguments, said = {
        "read": ("read_file", {"path": path}, f"def mooring_{number}_{which}(berth_id):\n    # {ticket}\n" * 12),
        "write": ("write_file", {"path": path, "content": f"TIDE_{number} = {10_000 + number}\n" * 9}, "written"),
        "run": (
            "bash",
            {"command": f"pytest tests/test_part_{which}.py"},
            f"{path}:{number + 40}: AssertionError: berth {ticket} is taken\nexit code 1\n" * 6,
        ),
        "todo": ("TodoWrite", {"todos": _list(number, which)}, "ok"),
        "guide": ("read_file", {"path": "AGENTS.md"}, GUIDE),
    }[kind]
    one = call(f"c{number}", name, orjson.dumps(arguments).decode())
    return [assistant(f"Step {number}: {kind} for {ticket}.", one), result(one.id, said)]


def _list(number: int, which: int) -> list[dict[str, str]]:
    return [{"content": f"mend part {part} ({number})", "status": "pending"} for part in range(which % 3 + 1)]


def sessions(max_rows: int = 40) -> st.SearchStrategy[tuple[Message, ...]]:
    """Whole sessions of such steps."""
    rows = st.one_of(st.lists(ROWS, min_size=max_rows // 2, max_size=max_rows), st.lists(ROWS, max_size=max_rows))
    return rows.map(lambda each: (system(), user("Mend the harbour module."), *work(each)))


def long_session(steps: int = 200) -> tuple[Message, ...]:
    """A session in which every kind of step comes again and again."""
    kinds = ("todo", "read", "write", "run", "read", "guide", "read", "run", "read", "read", "say")
    rows = [(kinds[number % len(kinds)], number * 3 % 10) for number in range(steps)]
    return (system(), user("Mend the harbour module."), *work(rows))


def forward(planned: Plan, policy: Policy, *, by_model: bool, states: KeptStates | None = None) -> list[bytes]:
    """The bytes of each message that a plan forwards. Each summary is named by its key."""
    wanted = by_model and planned.request is not None and planned.request.asks_model
    key = planned.request.key if planned.request is not None else ""
    summary = Summary(f"Summary {key}.", by_model=True) if wanted else None
    outcome = apply(planned, policy, count=count, summary=summary, states=states)
    return [orjson.dumps(wire) for wire in write_all(outcome.conversation.messages)]


def plan_of(messages: Sequence[Message], policy: Policy, states: KeptStates | None = None) -> Plan:
    """The plan for a transcript."""
    return plan(conversation(*messages), policy, count=count, states=states)


def requests(messages: Sequence[Message]) -> list[int]:
    """The number of messages in each request of a session."""
    return [stop for stop in range(2, len(messages) + 1) if messages[stop - 1].role != "assistant"]


def carried_of(messages: Sequence[Message], policy: Policy, states: KeptStates | None = None) -> str:
    """The text between the summary's text and the line that ends the summary; empty if nothing was cut."""
    planned = plan_of(messages, policy, states)
    if planned.request is None:
        return ""
    return find_carried(b"\n".join(forward(planned, policy, by_model=True, states=states)).decode(), planned)


def find_carried(sent: str, planned: Plan) -> str:
    """The same text in what was forwarded for a plan with a cut. With a digest, it is all above the line."""
    mark = f"Summary {planned.request.key}." if planned.request is not None else ""
    return sent[: sent.index(SUMMARY_END)].rpartition(mark)[2] if mark and SUMMARY_END in sent else ""


def check_append_law(messages: Sequence[Message], policy: Policy, *, by_model: bool, every: int = 1) -> int:
    """The number of cuts. Fails if a byte of what was forwarded changes for another reason.

    One process that keeps states serves all requests, and a new one serves each. Both must forward the same. What a new
    one decides is looked at when a cut moved, every tenth time, and at last: what differed before would differ then. So
    is what it forwards if the cut is put off. `every` fifth request of a long session, for example, is enough, and each
    at which a cut moved.
    """
    states = KeptStates()
    before: Plan | None = None
    sent: list[bytes] = []
    stops = requests(messages)
    for number, stop in enumerate(stops, start=1):
        after = plan_of(messages[:stop], policy, states)
        stays = before is not None and _place(before) == _place(after)
        is_looked_at = not stays or number % 10 == 0 or number == len(stops)
        if not is_looked_at and number % every:
            continue
        forwarded = forward(after, policy, by_model=by_model, states=states)
        if is_looked_at:
            bare = plan_of(messages[:stop], policy)
            assert after == bare
            assert forwarded == forward(bare, policy, by_model=by_model)
        assert not stays or forwarded[: len(sent)] == sent
        earlier = after.put_off()
        if before is not None and earlier is not None and _place(before) == _place(earlier):
            for kept in (states, None) if is_looked_at else (states,):
                assert forward(earlier, policy, by_model=by_model, states=kept)[: len(sent)] == sent
        before, sent = after, forwarded
    return len(before.window.cuts) if before else 0


def _place(planned: Plan) -> object:
    return planned.window.cuts, planned.window.prune_stop, planned.window.images


@MANY
@given(messages=sessions(), policy=policies_of_all_economies(), by_model=st.booleans())
def test_what_was_forwarded_is_forwarded_again_with_all_that_is_carried(
    messages: tuple[Message, ...], policy: Policy, *, by_model: bool
) -> None:
    """The bytes stay until the cut moves, also if a cut is put off. Kept states change nothing."""
    check_append_law(messages, policy, by_model=by_model)


@pytest.mark.parametrize(
    ("economy", "window", "by_model"),
    [(Economy.CAREFUL, 32_000, True), (Economy.BALANCED, 128_000, False), (Economy.FRUGAL, 32_000, False)],
)
def test_a_long_session_carries_the_same_from_cut_to_cut(economy: Economy, window: int, *, by_model: bool) -> None:
    """The law holds over many cuts."""
    policy = replace(by_economy(POLICY, economy, window), context_window=9000, prices=Prices())
    assert check_append_law(long_session(130), policy, by_model=by_model, every=5) >= 3


@pytest.mark.parametrize(
    ("economy", "window"), [(Economy.CAREFUL, 128_000), (Economy.BALANCED, 32_000), (Economy.FRUGAL, 128_000)]
)
def test_behind_each_cut_something_is_carried(economy: Economy, window: int) -> None:
    """Names are carried at windows like those of the waters. The newest task list is carried whenever it has room."""
    policy = replace(by_economy(POLICY, economy, window), context_window=9000, prices=Prices())
    messages, states = long_session(), KeptStates()
    carried = set()
    for stop in requests(messages):
        planned = plan_of(messages[:stop], policy, states)
        if planned.window.cut is not None:
            sent = b"".join(forward(planned, policy, by_model=True, states=states)).decode()
            carried.add(find_carried(sent, planned))
            lists = [one for message in messages[:stop] for one in message.tool_calls if one.name == "TodoWrite"]
            assert all(item["content"] in sent for item in orjson.loads(lists[-1].arguments)["todos"])
    assert len(carried) >= 4
    assert all(NAMES_TITLE in text or "mend part" in text for text in carried)
    assert {NAMES_TITLE in text for text in carried} == {True} or window > 32_000


@MANY
@given(
    trunk=sessions(),
    branches=st.lists(st.tuples(st.integers(0, 80), st.lists(ROWS, max_size=8)), min_size=2, max_size=4),
    policy=policies_of_all_economies(),
)
def test_nothing_behind_the_place_where_a_cut_was_made_changes_what_is_carried(
    trunk: tuple[Message, ...], branches: list[tuple[int, list[Row]]], policy: Policy
) -> None:
    """Sessions that continue differently from there forward the same summary, whichever of them is remembered."""
    states, told = KeptStates(), dict[object, list[bytes]]()
    for back, rows in branches:
        messages = (*trunk[: max(len(trunk) - back, 2)], *work(rows, first=100))
        planned = plan_of(messages, policy, states)
        cut = planned.window.cut
        sent = forward(planned, policy, by_model=True, states=states)
        assert sent == forward(plan_of(messages, policy), policy, by_model=True)
        if cut is None:
            continue
        memo = sent[: len(sent) - (len(messages) - cut.at)]
        made_of = tuple(message.raw for message in messages[: cut.made_at]), planned.window.cuts
        assert told.setdefault(made_of, memo)[: len(memo) - 1] == memo[:-1]


def find_cut(policy: Policy) -> tuple[Message, ...]:
    """A session that ends some messages after a cut over which the task list is carried."""
    messages = (*long_session(40), *work([("read", number % 10) for number in range(80)], first=40))
    for stop in requests(messages):
        cut = plan_of(messages[:stop], policy).window.cut
        if cut is not None and cut.made_at + 4 <= stop and "mend part" in carried_of(messages[:stop], policy):
            return messages[:stop]
    raise AssertionError


@pytest.mark.parametrize("economy", Economy)
def test_only_what_was_there_when_the_cut_was_made_tells_what_is_carried(economy: Economy) -> None:
    """A newer list changes it only if the list was in the tail at that time."""
    policy = replace(by_economy(POLICY, economy, 32_000), context_window=9000)
    messages = find_cut(policy)
    carried, window = carried_of(messages, policy), plan_of(messages, policy).window
    made_at, newer = window.cut.made_at, work([("todo", 2)], first=500)
    for behind in (newer, work([("guide", 0)], first=501), work([("say", number) for number in range(8)])):
        other = (*messages[:made_at], *behind)
        assert plan_of(other, policy).window.cuts == window.cuts
        assert carried_of(other, policy) == carried
    # If the list takes the place of that tail's newest step, with the same size, the tail shows it: nothing is carried.
    steps = [index for index in range(window.cut.at, made_at - 1) if messages[index].tool_calls]
    replaced = messages[steps[-1] : steps[-1] + 2]
    same_size = [replace(each, tokens=one.tokens) for each, one in zip(newer, replaced, strict=True)]
    inside = (*messages[: steps[-1]], *same_size, *messages[steps[-1] + 2 :])
    assert plan_of(inside, policy).window.cuts == window.cuts
    assert "mend part" in carried
    assert "mend part" not in carried_of(inside, policy)


def test_a_task_that_comes_behind_a_cut_changes_nothing_that_is_carried() -> None:
    """An agent may have worked before the user's first message. What was carried until then stays the same."""
    policy = replace(by_economy(POLICY, Economy.BALANCED, 32_000), context_window=9000)
    messages = (system(), *work([("read", number % 10) for number in range(40)]))
    window = plan_of(messages, policy).window
    assert window.cut is not None
    assert window.task is None
    behind = (*messages, user("Now mend HB-1001 in src/harbour/part_1.py."))
    assert plan_of(behind, policy).window == structs.replace(window, task=len(messages))
    assert carried_of(behind, policy) == carried_of(messages, policy) != ""
