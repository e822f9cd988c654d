"""The append law: a transcript that grows by one message is forwarded with the same beginning.

Law: it uses only plan() and apply(), without remembered states.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from support.builders import KeptStates, conversation, count

from trimtab.rules.conversation import Conversation, Message, Outcome
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.pipeline.transcript_state import NO_COLD
from trimtab.rules.policy import OnExceeded, Policy
from trimtab.rules.results.work import Work
from trimtab.rules.summary.request import Summary
from trimtab.rules.window.state import ColdCut

SUMMARY = "The build was mended in part; the tests are still to be run."


def run(
    given_conversation: Conversation,
    policy: Policy,
    cold: Mapping[bytes, ColdCut] = NO_COLD,
    work: Work | None = None,
    states: KeptStates | None = None,
) -> tuple[Plan, Outcome]:
    """The plan of a transcript and its outcome, with a model's summary if one is asked for. `states` only save time."""
    planned = plan(given_conversation, policy, count=count, cold=cold, work=work, states=states)
    summary = Summary(SUMMARY, by_model=True) if planned.request and planned.request.asks_model else None
    return planned, apply(planned, policy, count=count, summary=summary, states=states)


def check_append_law(
    messages: tuple[Message, ...],
    policy: Policy,
    cold: Mapping[bytes, ColdCut] = NO_COLD,
    work: Work | None = None,
    *,
    every: int = 1,
) -> int:
    """The number of moves of the cut while a transcript grows. Fails if the prefix changed for another reason.

    That long user messages become short counts as a move. `every` fifth message, for example, is enough of a long one.
    """
    moves = seen = 0
    before_plan, before = run(conversation(), policy, cold, work)
    for stop in range(every, len(messages) + 1, every):
        try:
            after_plan, after = run(conversation(*messages[:stop]), policy, cold, work)
        except LimitExceededError:
            continue  # nothing was forwarded that a cache could hold
        if _cut_place(before_plan) != _cut_place(after_plan):
            moves += 1
        else:
            may_shorten = policy.on_exceeded is OnExceeded.TRUNCATE
            settled = min(
                _count_settled(messages[:seen], newest, before, may_shorten=may_shorten)
                for newest in messages[seen:stop]
            )
            assert _list_sent(after)[:settled] == _list_sent(before)[:settled]
        before_plan, before, seen = after_plan, after, stop
    return moves


def _list_sent(outcome: Outcome) -> list[Message]:
    """What is forwarded. Which call a result without an id answers is not, as long as its bytes stay the client's."""
    return [one if one.edited else replace(one, answers=None) for one in outcome.conversation.messages]


def _cut_place(planned: Plan) -> object:
    window = planned.window
    return window.cuts, window.prune_stop, window.images, window.users_stop


def _count_settled(messages: Sequence[Message], newest: Message, outcome: Outcome, *, may_shorten: bool = False) -> int:
    """The number of forwarded messages that the newest one may not change: all of them, unless it is a result.

    If messages that do not fit are shortened, every message except an answer may change, because it shares the room
    with those before it. A result may still answer a call of the last stretch. That stretch begins with the last
    assistant message that does not follow another one. Results with which a transcript begins are one message.
    """
    sent = outcome.conversation.messages
    if newest.role != "tool" and not (may_shorten and newest.role != "assistant"):
        return len(sent)
    opens = [
        message
        for index, message in enumerate(messages)
        if message.role == "assistant" and (index == 0 or messages[index - 1].role != "assistant")
    ]
    if not opens:
        return 0 if may_shorten else next((at for at, one in enumerate(sent) if one.is_written), len(sent))
    return next((index for index, message in enumerate(sent) if message.raw is opens[-1].raw), 0)
