"""What becomes of a request for which no thread was free in time.

Law: it is forwarded unchanged only if it surely needs no compaction.
"""

import re

from proxy.exchange.attempts.call import Call
from proxy.http.errors import NO_THREAD_LEFT, OverloadedError
from proxy.wire.codec import Request
from rules.policy import Policy
from rules.window.room import HEAD_STEPS

FRAME_TOKENS = 64
"""Upper bound on the tokens of a request that are not in its bytes. Chosen: above the largest frame in rules/tokens."""
_OTHER_PART = re.compile(rb'"type"\s*+:\s*+"(?!(?:text|function)")')
"""Matches a content part that is not text."""


def refuse_or_pass(call: Call) -> OverloadedError | None:
    """The refusal of the request; None if it surely needs nothing, or is only observed, and passes unchanged."""
    if call.route.target.mode == "enforce" and not surely_stays(call.request, call.view.policy):
        return OverloadedError(NO_THREAD_LEFT)
    return None


def surely_stays(request: Request, policy: Policy) -> bool:
    """Whether a request surely fits the window and needs no cut, judged by its bytes alone.

    A token has at least one byte. Images and files are not counted by their bytes, so a request with them is not sure.
    """
    if b"\\u" in request.body or any(_OTHER_PART.search(raw) for raw in request.raws):
        return False
    most_tokens = FRAME_TOKENS + sum(map(len, (*request.raws, *request.fixed)))
    limit = min(policy.limit_tokens(request.max_tokens), policy.model_limit_tokens(request.max_tokens))
    # All tokens count twice, as head (rounded up) and as conversation. So the result is on the safe side.
    room = limit - most_tokens - limit // HEAD_STEPS
    return most_tokens < policy.high_water * room
