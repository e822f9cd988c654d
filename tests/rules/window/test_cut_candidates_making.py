"""A cut is made: what stays of the part that it removes fits its budgets, and costs what the cut says."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st
from support.builders import IMAGE, assistant, call, fill, result, shown, system, user

from trimtab.rules.conversation import Message, Role, count_leading
from trimtab.rules.policy import Policy, PreserveSystem
from trimtab.rules.text.client_summaries import is_client_summary
from trimtab.rules.window.cut_candidates import LOOP_TOKENS, SUMMARY_FRAME_TOKENS, Cuts
from trimtab.rules.window.prune import saving_tokens
from trimtab.rules.window.room import Room
from trimtab.rules.window.state import Cut, CutKind
from trimtab.rules.window.sums import Sums

LIMIT = 4000
POLICY = Policy(keep_user_tokens=200, summary_max_tokens=200, high_water=0.8, low_water=0.4, anchor_share=0.06)
HEAD = (system("You are careful."), user("Mend the build."))
OPENING = "This session is being continued from a previous conversation that ran out of context. All went well."

ROWS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(0, 2), st.integers(1, 260)),
        st.tuples(st.just("shot"), st.integers(0, 2), st.integers(1, 60)),
        st.tuples(st.just("user"), st.integers(0, 2), st.integers(1, 120)),
        st.tuples(st.just("image"), st.integers(0, 2), st.integers(1, 60)),
        st.tuples(st.just("system"), st.integers(0, 2), st.integers(1, 80)),
    ),
    min_size=1,
    max_size=40,
)
"""What is added to a session: its kind, which of three calls or texts it is, and its size."""
LOOP = [("read", 0, 100)] * 6 + [("read", 1, 100)]


def _write(rows: Sequence[tuple[str, int, int]], *, has_opening: bool) -> list[Message]:
    messages = [*HEAD]
    if has_opening:
        messages.append(user(OPENING))
    for number, (kind, which, tokens) in enumerate(rows):
        text = fill(f"{kind} {which}", tokens)
        match kind:
            case "read":
                called = call(f"c{number}", "read", f'{{"path":"{which}"}}')
                messages += [assistant("I read.", called), result(f"c{number}", text)]
            case "shot":
                messages += [assistant("Look.", call(f"c{number}", "see", str(which))), shown(f"c{number}", IMAGE)]
            case "image":
                messages.append(user(text, IMAGE))
            case _:
                messages.append(user(text) if kind == "user" else system(text))
    return messages


def _sum(messages: Sequence[Message], policy: Policy) -> tuple[Cuts, Sums]:
    """The cuts behind these messages. Each result was removed before its call was made again."""
    sums = Sums(count_leading(messages), keeps_systems=policy.preserve_system is PreserveSystem.ALL)
    for index, message in enumerate(messages):
        if message.tool_calls:
            sums.repeats.add(index, message, lambda _: True)
        elif message.role is Role.TOOL:
            sums.repeats.answer(message)
        sums.add(message)
    return Cuts(Room.measure(messages, 0, LIMIT), policy, sums), sums


def _cost(messages: Sequence[Message], cut: Cut) -> int:
    """What the messages cost that the cut lists. User messages lose their images, but for one."""
    steps = [index for step in cut.kept_steps for index in range(*step)]
    opening = [cut.opening] if cut.opening >= 0 else []
    tokens = sum(messages[index].tokens for index in (*cut.kept_systems, *steps, *opening))
    tokens += sum(messages[index].tokens for index in cut.kept)
    tokens += LOOP_TOKENS if cut.unfit >= 0 else 0
    return tokens - sum(saving_tokens(messages[index]) for index in cut.kept if index != cut.spared)


policies = st.builds(
    replace,
    st.just(POLICY),
    preserve_system=st.sampled_from(PreserveSystem),
    keep_user_tokens=st.sampled_from([0, 60, 200]),
    low_water=st.sampled_from([0.2, 0.4, 0.7]),
)


@given(
    rows=ROWS,
    part=st.floats(0, 1),
    policy=policies,
    has_opening=st.booleans(),
    keeps_least=st.booleans(),
)
@example(rows=LOOP, part=1.0, policy=POLICY, has_opening=True, keeps_least=False)
@example(rows=[("image", 0, 20), *LOOP], part=1.0, policy=POLICY, has_opening=False, keeps_least=False)
def test_a_cut_costs_what_it_lists(rows, part, policy, has_opening, keeps_least):
    """The cost is that of the frame, of what is reserved, and of the messages listed when the cut is applied."""
    messages = _write(rows, has_opening=has_opening)
    cuts, _ = _sum(messages, policy)
    at = 2 + int(part * (len(messages) - 2))
    made = cuts.make(CutKind.SUMMARISE, at, 70, 9, keeps_least=keeps_least)
    listed = cuts.list_kept(made, keeps_least=keeps_least)
    assert listed.tokens == made.tokens == SUMMARY_FRAME_TOKENS + 70 + 9 + _cost(messages, listed)
    assert listed.made_at == len(messages)
    places = [*listed.kept, *listed.kept_systems, *(start for start, _ in listed.kept_steps), listed.opening]
    assert all(place < at for place in places)


@given(rows=ROWS, part=st.floats(0, 1), policy=policies)
@example(rows=LOOP, part=1.0, policy=POLICY)
def test_what_stays_fits_its_budgets(rows, part, policy):
    """Kept steps have half of the gap between the waters. Of equal reminders one stays, in a quarter of low water."""
    messages = _write(rows, has_opening=False)
    cuts, sums = _sum(messages, policy)
    at = 2 + int(part * (len(messages) - 2))
    cut = cuts.list_kept(cuts.make(CutKind.SUMMARISE, at, 70))
    steps = [sum(messages[index].tokens for index in range(*step)) for step in cut.kept_steps]
    assert sum(steps) <= (cuts.marks.high - cuts.marks.low) // 2
    assert all(stop == sums.find_stop(start) <= at for start, stop in cut.kept_steps)
    assert list(cut.kept_steps) == sorted(set(cut.kept_steps))
    systems = [messages[index] for index in cut.kept_systems]
    if policy.preserve_system is PreserveSystem.LEADING:
        assert len({one.digest for one in systems}) == len(systems)
        assert sum(one.tokens for one in systems) <= cuts.marks.low // 4


def test_a_looping_step_stays_wherever_it_is():
    """The fourth equal call, or a later one, is a loop. Its newest step stays, also far before the cut."""
    others = [("read", which, 100) for which in (1, 2)]
    for number in range(2, 7):
        messages = _write([("read", 0, 100)] * number + others, has_opening=False)
        cuts, _ = _sum(messages, POLICY)
        expected = [] if number < 4 else [(2 * number, 2 * number + 2)]
        assert cuts.divide_loops(len(messages))[0] == expected
        assert cuts.divide_loops(2 * number)[0] == []


def test_of_too_many_loops_the_newest_stay():
    """They fill the budget from the newest one on. A shorter one that still fits stays, too."""
    rows = [("read", which, tokens) for which, tokens in ((0, 20), (1, 250), (2, 500)) for _ in range(4)]
    messages = _write([*rows, ("read", 1, 250), ("read", 2, 500)], has_opening=False)
    cuts, _ = _sum(messages, POLICY)
    budget = (cuts.marks.high - cuts.marks.low) // 2
    kept = cuts.divide_loops(len(messages))[0]
    assert 500 < budget < 800
    assert [messages[start].tool_calls[0].arguments for start, _ in kept] == ['{"path":"0"}', '{"path":"2"}']
    (unfit,) = cuts.divide_loops(len(messages))[1]
    assert messages[unfit[0]].tool_calls[0].arguments == '{"path":"1"}'
    assert cuts.make(CutKind.DIGEST, len(messages), 70).unfit == unfit[0]
    assert cuts.make(CutKind.DIGEST, len(messages), 70, keeps_least=True).unfit == -1


def test_the_clients_own_summary_stays_unless_it_is_long():
    """A quarter of the limit is the most. A longer one stays only because nothing newer was said by the user."""
    assert is_client_summary(OPENING)
    for more, stays in ((10, True), (900, True), (1000, False)):
        messages = [*HEAD, user(f"{OPENING}\n{fill('more', more)}"), *_write(LOOP, has_opening=False)[2:]]
        cuts, _ = _sum(messages, POLICY)
        assert cuts.opening == (2 if stays else -1)
        cut = cuts.list_kept(cuts.make(CutKind.DIGEST, 6, 70))
        assert cut.opening == (2 if stays else -1)
        assert cut.kept == (() if stays else (2,))
