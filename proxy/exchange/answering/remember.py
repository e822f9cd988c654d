"""Remembers when a session was last answered, and learns from the answer how long the upstream's cache lives.

Law: only sessions that a cold cache could matter for. The client has its answer already.
"""

from proxy.exchange.attempts.cold_cache import find_previous, find_session
from proxy.exchange.attempts.compact import Attempt
from proxy.exchange.report import Answered
from proxy.exchange.services import Services


async def remember(services: Services, attempt: Attempt, answered: Answered) -> None:
    """Note the time of this answer for the session's next request, whichever process gets it."""
    call, chosen = attempt.call, attempt.chosen
    if call is None or chosen is None or attempt.body is None:
        return
    planned = chosen.planned
    session = find_session(services, call, planned)
    if session is None:
        return
    if call.idle_seconds is not None and answered.prompt_tokens and answered.cached_tokens is not None:
        share, name = answered.cached_tokens / answered.prompt_tokens, call.view.name
        services.lifetimes.learn(session.tenant, name.base_url, name.model, call.idle_seconds, share)
    plan = planned.plan
    previous = plan.hashes[find_previous(plan.conversation.messages)]
    await services.cold_cuts.note_time(session, plan.hashes[-1], previous, shares=plan.window.is_long)
