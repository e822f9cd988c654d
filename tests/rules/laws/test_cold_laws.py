"""Cuts that were decided at a cold cache: with the same ones, all decisions are replayable.

Law: they are data. What they do depends on the messages before them and on the policy.
"""

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import assume, example, given
from hypothesis import strategies as st
from support.append_law import check_append_law, run
from support.builders import KeptStates, conversation, count, session, valid_transcripts
from support.policies import POLICY, with_any_waters

from trimtab.rules.conversation import Message
from trimtab.rules.pipeline.order import plan
from trimtab.rules.policy import OverflowStrategy, Policy, Prices
from trimtab.rules.prefix import hash_prefixes
from trimtab.rules.window.state import ColdCut

PRICED = replace(POLICY, prices=Prices(), overflow_strategy=OverflowStrategy.AUTO_COMPACT)
POLICIES = with_any_waters(
    st.builds(
        replace,
        st.just(PRICED),
        overflow_strategy=st.sampled_from(OverflowStrategy),
        prices=st.sampled_from([Prices(), Prices(1.0, 0.02, 4.0, 1.25), Prices(1.0, 0.5, 1.1)]),
    )
)
COLD = st.dictionaries(st.integers(0, 80), st.sampled_from(ColdCut), max_size=4)
SESSION = session(40)
LONG = 52
"""A number of its messages above the mark."""


def place(messages: tuple[Message, ...], cold: Mapping[int, ColdCut]) -> dict[bytes, ColdCut]:
    """Cold cuts by prefix, from those by number of messages."""
    hashes = hash_prefixes(messages)
    return {hashes[at]: kind for at, kind in cold.items() if 2 < at < len(hashes)}


@given(valid_transcripts(), POLICIES, COLD)
@example(SESSION, PRICED, {30: ColdCut.CUT, 41: ColdCut.PRUNE})
def test_a_longer_transcript_keeps_the_forwarded_beginning(
    messages: tuple[Message, ...], policy: Policy, cold: Mapping[int, ColdCut]
) -> None:
    """The prefix changes only when the cut moves, by the clock or not."""
    check_append_law(messages, policy, place(messages, cold))


@given(valid_transcripts(12), POLICIES, COLD)
@example(SESSION, PRICED, {30: ColdCut.CUT, 41: ColdCut.PRUNE})
def test_remembered_states_change_nothing(
    messages: tuple[Message, ...], policy: Policy, cold: Mapping[int, ColdCut]
) -> None:
    """Neither if a cold cut is known from the start, nor if it is decided after the request was planned without it.

    Nor if it is tried and then not made.
    """
    placed, states = place(messages, cold), KeptStates()
    for stop in range(len(messages), 2, -6)[::-1]:
        grown = conversation(*messages[:stop])
        here = hash_prefixes(grown.messages)[-1]
        before = {chain: kind for chain, kind in placed.items() if chain != here}
        tried = ({**before, here: kind} for kind in ColdCut)
        for known in (before, *tried, placed):
            assert plan(grown, policy, count=count, states=states, cold=known) == plan(
                grown, policy, count=count, cold=known
            )


@given(valid_transcripts(), POLICIES, COLD)
def test_a_cold_cut_changes_nothing_before_it(
    messages: tuple[Message, ...], policy: Policy, cold: Mapping[int, ColdCut]
) -> None:
    first = min(place(messages, cold) and (at for at in cold if 2 < at <= len(messages)), default=len(messages) + 1)
    assume(first > 3)
    shorter = conversation(*messages[: first - 1])
    assert run(shorter, policy, place(messages, cold)) == run(shorter, policy)
    assert run(shorter, policy, {bytes([9]) * 32: ColdCut.CUT}) == run(shorter, policy)


def find_tokens(at: int, kind: ColdCut, policy: Policy = PRICED) -> tuple[int, int]:
    """The tokens forwarded after `at` messages of the session, without and with a cold cut there."""
    messages = SESSION[:at]
    plain, cold = (
        run(conversation(*messages), policy),
        run(conversation(*messages), policy, place(messages, {at: kind})),
    )
    return plain[1].conversation.tokens, cold[1].conversation.tokens


def test_above_the_mark_a_cold_cut_removes_a_quarter_between_the_waters() -> None:
    for kind in (ColdCut.CUT, ColdCut.PRUNE):
        found = [find_tokens(at, kind) for at in range(4, len(SESSION))]
        assert next(plain for plain, cold in found if plain != cold) >= 0.45 * POLICY.context_window
        assert max(plain - cold for plain, cold in found) > 0.1 * POLICY.context_window
    messages = SESSION[:LONG]
    assert run(conversation(*messages), PRICED, place(messages, {LONG: ColdCut.PRUNE}))[0].request is None


def test_a_cut_that_asks_is_the_same_cut_if_its_summary_costs_little() -> None:
    """If the summary costs more than what is cut, or is large beside the session's cost, there is no cut."""
    free, dear = (replace(PRICED, prices=Prices(1.0, 0.1, output)) for output in (0.0, 100.0))
    cut, asked = (find_tokens(LONG, kind, free) for kind in (ColdCut.CUT, ColdCut.ASK))
    assert cut[0] > cut[1] == asked[1]
    plain, cold = find_tokens(LONG, ColdCut.ASK, dear)
    assert plain == cold


def test_if_reading_the_cache_saves_nothing_a_cold_cache_means_nothing() -> None:
    """The same for the strategy that forbids cuts. Where they are allowed, a cut that was asked for is made."""
    same = replace(PRICED, prices=Prices(1.0, 1.0, 4.0))
    refuses = replace(PRICED, overflow_strategy=OverflowStrategy.ERROR)
    for policy in (same, refuses):
        for kind in ColdCut:
            plain, cold = find_tokens(LONG, kind, policy)
            assert (plain == cold) is not (policy is same and kind is ColdCut.NOW)
