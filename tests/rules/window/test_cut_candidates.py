"""The windows that could come next: where they are cut, and what they leave."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.builders import IMAGE, assistant, call, fill, result, session, shown, system, user, valid_transcripts

from trimtab.rules.conversation import Message, count_leading
from trimtab.rules.policy import OverflowStrategy, Policy
from trimtab.rules.window.cut_candidates import SUMMARY_FRAME_TOKENS, Cuts
from trimtab.rules.window.prune import PLACEHOLDER_TOKENS, ImageStop, saving_tokens
from trimtab.rules.window.room import Room
from trimtab.rules.window.state import CutKind, Window
from trimtab.rules.window.sums import Sums

LIMIT = 4000
POLICY = Policy(
    protect_turns=0,
    keep_user_tokens=200,
    summary_max_tokens=200,
    summary_min_steps=3,
    high_water=0.8,
    low_water=0.4,
    anchor_share=0.06,
)
HEAD = (system("You are careful."), user("Mend the build."))


def cuts_of(messages: Sequence[Message], policy: Policy = POLICY) -> tuple[Cuts, Sums, Window]:
    """The windows that could follow these messages, their sums, and the window without a cut."""
    sums = Sums(count_leading(messages))
    for message in messages:
        sums.add(message)
    return Cuts(Room.measure(messages, 0, LIMIT), policy, sums), sums, Window(task=sums.task)


@given(messages=valid_transcripts(), prune_stop=st.integers(0, 60))
def test_a_window_costs_what_is_forwarded_of_each_message(messages: tuple[Message, ...], prune_stop: int) -> None:
    """The cost is that after the head. Results before a place count as placeholders, and images as lines."""
    messages = (*HEAD, *messages)
    cuts, sums, window = cuts_of(messages)
    stop = min(prune_stop, len(messages))
    costs = [
        message.tokens
        if index >= stop
        else min(message.tokens, PLACEHOLDER_TOKENS)
        if message.role == "tool"
        else message.tokens - saving_tokens(message)
        for index, message in enumerate(messages)
    ]
    assert cuts.size(structs.replace(window, prune_stop=stop, images=ImageStop(stop))) == sum(costs[2:])
    assert cuts.rest(window) + cuts.open_tokens == cuts.size(window)
    assert cuts.open_tokens == sum(message.tokens for message in messages[max(sums.open_step, 2) :])


def test_a_cut_leaves_low_water_at_most() -> None:
    """Low water includes the summary and the growth until it is applied, unless the newest step alone is longer."""
    for steps in range(20, 60, 9):
        messages = (*HEAD, *session(steps)[2:])
        cuts, sums, window = cuts_of(messages)
        for growth in (0, 1, cuts.share(0.05), cuts.share(0.15)):
            at = cuts.find_cut(window, growth)
            assert at is not None
            left = cuts.size(cuts.cut_at(window, at)) + growth
            assert left <= cuts.share(POLICY.low_water)
            step_tokens = sum(message.tokens for message in messages[at - 2 : at])
            assert at == sums.open_step or left + step_tokens > cuts.share(POLICY.low_water)


def test_a_summary_has_less_in_an_agents_session_than_in_a_chat() -> None:
    """A digest is mostly what was said: the policy's bound in a chat, and less, the less the user says."""
    most, least = 600, int(LIMIT / 12)
    policy, reserves = replace(POLICY, summary_max_tokens=most), []
    chat = (*HEAD, *(part(f"Part {turn}.") for turn in range(12) for part in (assistant, user)))
    for messages in (session(20), (*session(10), *chat[2:]), chat):
        cut = cuts_of(messages, policy)[0].cut_at(Window(task=1), len(messages)).cut
        assert cut is not None
        reserves.append(cut.reserved_tokens)
    assert (reserves[0], reserves[-1]) == (least, most)
    assert reserves == sorted(reserves)
    assert len(set(reserves)) == len(reserves)


def test_images_of_the_users_last_words_count_among_those_that_stay() -> None:
    """The next ones are removed as soon as there are twice as many as the policy says, with these."""
    for shots in range(8):
        steps = [(assistant(None, call(f"c{shot}", "see")), shown(f"c{shot}", IMAGE)) for shot in range(shots)]
        cuts, _, window = cuts_of((*HEAD, user("Like this.", IMAGE), *(each for step in steps for each in step)))
        later = cuts.keep_images(structs.replace(window, images=ImageStop(3, spared=2)), 2)
        assert (later is not None) is (1 + shots >= 2 * 2)


def test_without_enough_steps_no_model_is_asked() -> None:
    """A digest suffices for a few steps. It is also used if the policy asks no model."""
    messages = session(20)
    few, many = 2 + 2 * 2, 2 + 2 * 3
    for policy, at, kind in (
        (POLICY, few, CutKind.DIGEST),
        (POLICY, many, CutKind.SUMMARISE),
        (replace(POLICY, overflow_strategy=OverflowStrategy.PRUNE), many, CutKind.DIGEST),
    ):
        cuts, _, window = cuts_of(messages, policy)
        # The task counts as a step, too.
        cut = cuts.cut_at(window, at - 2).cut
        assert cut.kind is kind


def test_a_window_cut_down_to_the_open_step_takes_what_is_left_of_the_room() -> None:
    """Its digest gets the rest, up to the length of a summary. It is not cut any further."""
    for tokens in (100, 2000, 3200, 3600, 5000):
        messages = (*session(30), assistant(None, call("a")), result("a", fill("long", tokens)))
        cuts, sums, window = cuts_of(messages)
        shrunk = cuts.shrink(window)
        assert (shrunk.cut.at, shrunk.cut.kind) == (sums.open_step, CutKind.DIGEST)
        left = cuts.marks.tokens - cuts.open_tokens - SUMMARY_FRAME_TOKENS
        assert shrunk.cut.reserved_tokens == min(max(left, 0), POLICY.summary_max_tokens)


def test_results_of_the_newest_turns_are_not_pruned() -> None:
    """The policy says how many turns are protected. If they alone fill the room, they are not."""
    turns = [message for number in range(4) for message in (user(f"turn {number}"), *session(3)[2:])]
    messages = (*HEAD, *turns)
    starts = [index for index, message in enumerate(messages) if message.role == "user"][1:]
    for protected in (1, 2, 3):
        cuts, _, window = cuts_of(messages, replace(POLICY, protect_turns=protected))
        pruned = cuts.prune(structs.replace(window, next_cut=len(messages)))
        assert pruned.prune_stop == starts[-protected]
    long = (*messages, assistant(None, call("a")), result("a", fill("long", LIMIT)))
    cuts, _, window = cuts_of(long, replace(POLICY, protect_turns=1))
    pruned = cuts.prune(structs.replace(window, next_cut=len(long)))
    assert pruned.prune_stop == len(long)


def test_of_too_many_turns_the_newest_half_stays() -> None:
    """The task statement is no turn, and as many turns as wanted stay."""
    turns = [message for _ in range(9) for message in (assistant(fill("a", 60)), user(fill("u", 60)))]
    cuts, sums, window = cuts_of((*HEAD, *turns, assistant("Yes.")))
    assert cuts.limit_turns(window, 9) is None
    for number, left in ((8, 4), (7, 4), (4, 2), (3, 2)):
        found = cuts.limit_turns(window, number)
        assert found.cut.at == sums.users[-left]
        assert cuts.limit_turns(found, left) is None


def test_a_summary_that_was_asked_for_ahead_is_used_although_more_than_high_water_stays() -> None:
    """So it was not written for nothing. Without it, the cut is chosen again, and so it is if nearly all would stay."""
    policy = replace(POLICY, high_water=0.5, low_water=0.3, overflow_strategy=OverflowStrategy.AUTO_COMPACT)
    messages = (*HEAD, *(assistant(fill(f"step {number}", 100)) for number in range(39)))
    cuts, sums, window = cuts_of(messages, policy)
    early, late = (sums.find_start(len(messages) - stays) for stays in (23, 31))
    for at, prefetch_tokens, is_kept in ((early, 200, True), (early, 0, False), (late, 200, False)):
        fixed = structs.replace(window, next_cut=at, prefetch_tokens=prefetch_tokens)
        assert cuts.size(cuts.cut_at(fixed, at)) > cuts.marks.high
        chosen = cuts.choose(fixed, over=True).window
        assert (chosen.cuts[-1].at == at) is is_kept


def test_memory_of_the_open_step_is_dropped_only_over_the_room() -> None:
    """And there only if high water is not left without it. Nothing is dropped where low water is left anyway."""
    cuts, sums, window = cuts_of(HEAD)
    for text, memory_tokens in (("Go on.", 300), (None, 0), ("And now?", LIMIT)):
        sums.add(assistant("Yes.") if text is None else user(text), memory_tokens)
    assert cuts.drop_memory(window, 0) == structs.replace(window, memory_stop=4)
    assert cuts.drop_memory(window, 0, over=True) == structs.replace(window, memory_stop=5)

    roomy, sums, window = cuts_of(HEAD)
    for text, memory_tokens in (("Go on.", 300), (None, 0), ("And now?", 0)):
        sums.add(assistant("Yes.") if text is None else user(text), memory_tokens)
    left = roomy.marks.low - roomy.size(window)
    assert roomy.drop_memory(window, left) is roomy.drop_memory(window, left, over=True) is None
    assert roomy.drop_memory(window, left + 1) == structs.replace(window, memory_stop=3)
