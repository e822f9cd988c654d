"""Fuzzes the bodies of Responses and Messages; see fuzzing/bodies.py.

Laws: also, what is sent says what was decided on, and costs what was counted. If the client's body was valid, the
independent checker of the dialect finds nothing wrong with the one sent.
"""

from collections.abc import Sequence

from fuzzing import messages_bodies, responses_bodies
from fuzzing.bodies import Sent, Speech
from support.dialects.spoken.messages import MESSAGES
from support.dialects.spoken.responses import RESPONSES

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import Counting
from trimtab.rules.conversation import Conversation
from trimtab.rules.policy import OnExceeded, SummaryRole


def find_problems(sent: Sent) -> Sequence[str]:
    """What is wrong with a changed body."""
    arrived = sent.arrived.codec.decode(sent.arrived, Counting(count_by_heuristic, make_known()))
    forwarded = sent.compacted.forwarded
    problems = []
    if _tell(arrived) != _tell(forwarded):
        problems.append("what was sent says something else than what was decided on")
    if sent.is_plain and sent.policy.summary_role is SummaryRole.AUTO:
        check = {"responses": RESPONSES, "messages": MESSAGES}[sent.arrived.codec.name].check_request
        may_shrink = sent.policy.on_exceeded is OnExceeded.TRUNCATE
        problems += check(sent.request.body, sent.compacted.body, last_may_shrink=may_shrink)
    return problems


def _tell(conversation: Conversation) -> tuple[list[str], list[str], list[str]]:
    """All paragraphs, all calls and all answers of a transcript, in any order."""
    messages = [one.as_said() for one in conversation.messages]
    said = [text for one in messages for text in (*one.texts, *(part.line for part in one.media if part.is_removed))]
    paragraphs = [one.strip("\n") for text in said for one in text.split("\n\n")]
    calls = [call.id for one in messages for call in one.tool_calls]
    answers = [one.answers for one in messages if one.answers is not None]
    return sorted(filter(None, paragraphs)), sorted(calls), sorted(answers)


fuzz_responses = Speech(RESPONSES, responses_bodies.GRAMMAR.write, find_problems).fuzz
fuzz_messages = Speech(MESSAGES, messages_bodies.GRAMMAR.write, find_problems).fuzz
