"""Remembers when a session was last answered, learns how long the upstream's cache lives, and prepares for a cold one.

Law: only sessions that a cold cache could matter for. The client has its answer already.
"""

from dataclasses import replace

from proxy.exchange.attempts.attempt import Attempt, Prepared
from proxy.exchange.attempts.choose_summary import choose_summariser, write_ahead
from proxy.exchange.attempts.cold_cache import find_lifetime, find_previous, find_session
from proxy.exchange.report import Answered
from proxy.exchange.services import Services
from rules.summary.request import request_cold
from rules.window.economics import pays_cold


async def remember(services: Services, attempt: Attempt, answered: Answered) -> None:
    """Note the time of this answer for the session's next request, whichever process gets it."""
    if not isinstance(attempt, Prepared) or attempt.body is None:
        return
    call, planned = attempt.call, attempt.chosen.planned
    session = find_session(services, call, planned)
    if session is None:
        return
    if call.idle_seconds is not None and answered.prompt_tokens and answered.cached_tokens is not None:
        share, name = answered.cached_tokens / answered.prompt_tokens, call.view.name
        services.lifetimes.learn(session.tenant, name.base_url, name.model, call.idle_seconds, share)
    plan = planned.plan
    previous = plan.hashes[find_previous(plan.conversation.messages)]
    await services.cold_cuts.note_time(session, plan.hashes[-1], previous, shares=plan.window.is_long)


def prepare_cold(services: Services, attempt: Attempt, answered: Answered) -> None:
    """Start to write the summary for a cut at a cold cache, if the session may be silent now and that pays.

    The upstream's cache is warm, so the question reads the prompt from it. A request causes at most one summary.
    """
    if not isinstance(attempt, Prepared) or attempt.is_test or not answered.ends_turn:
        return
    call, chosen, plan = attempt.call, attempt.chosen, attempt.chosen.planned.plan
    cold = plan.window.cold_summary
    if cold is None or plan.is_put_off or chosen.later is not None:
        return
    if attempt.body is None or find_session(services, call, chosen.planned) is None:
        return
    lifetime_seconds = find_lifetime(services, call)
    if lifetime_seconds is None or not pays_cold(cold, lifetime_seconds):
        return
    later = request_cold(plan.conversation.messages, plan.hashes, plan.window)
    summariser = chosen.summariser or choose_summariser(services, call)
    write_ahead(services, call, replace(chosen, later=later, summariser=summariser), attempt.compacted)
