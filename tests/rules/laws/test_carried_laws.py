"""The laws of the text that code carries over a cut, through the whole pipeline: when it changes, and when not."""

from collections.abc import Sequence
from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
    rows = st.one_of(st.lists(ROWS, min_size=max_rows // 2, max_size=max_rows), st.lists(ROWS, max_size=max_rows))
    return rows.map(lambda each: (system(), user("Mend the harbour module."), *work(each)))


def long_session(steps: int = 200) -> tuple[Message, ...]:
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
    return plan(conversation(*messages), policy, count=count, states=states)


def requests(messages: Sequence[Message]) -> list[int]:
    return [stop for stop in range(2, len(messages) + 1) if messages[stop - 1].role != "assistant"]


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
    [(Economy.CAREFUL, 32_000, True), (Economy.FRUGAL, 32_000, False)],
)
def test_a_long_session_carries_the_same_from_cut_to_cut(economy: Economy, window: int, *, by_model: bool) -> None:
    policy = replace(by_economy(POLICY, economy, window), context_window=9000, prices=Prices())
    assert check_append_law(long_session(100), policy, by_model=by_model, every=5) >= 2


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
