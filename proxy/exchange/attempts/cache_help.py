"""Adds to an attempt what its provider takes for its prompt cache, and takes it back if the upstream refuses it.

What the provider is told of a changed transcript is taken back in the same way.

Law: every addition is a decision, and no rule's. The client never sees a refusal of what only trimtab has added.
"""

from dataclasses import replace
from functools import partial

from proxy.compaction.compactor import help_cache as add_help
from proxy.compaction.offload import weigh_known
from proxy.exchange.attempts.attempt import Prepared
from proxy.exchange.attempts.call import Route
from proxy.exchange.attempts.provider_cache import add_key, name_asked
from proxy.exchange.early_answer import Opening
from proxy.exchange.report import fail_open
from proxy.exchange.services import Services
from proxy.wire.content.cache_help import FIELDS, NO_HELP, Addition
from rules.conversation import Decision

OUTCOME = "cache_help"
"""The outcome of a request to which nothing else was done."""
REFUSING_STATUSES = frozenset({400, 422})
"""The statuses with which servers refuse an unknown field. Source: OpenAI's and vLLM's error answers."""
THINKING: Addition = "thinking"
NAMES = {**FIELDS, THINKING: b"block_binding"}
REFUSED = "cache_refused"
"""The name of the decision to send an attempt again without its additions."""


async def help_cache(services: Services, attempt: Prepared) -> Prepared:
    """The attempt with what its provider takes; the attempt itself if that is nothing, or after a fault."""
    call, compacted, body = attempt.call, attempt.compacted, attempt.body
    if body is None or not call.request.cache.adds:
        return attempt
    with fail_open(services.recorder, call.arrival.request_id, "cache"):
        work = partial(add_help, add_key(call, attempt.chosen.planned), compacted)
        helped = await services.workers.run(call.lane, work, size_bytes=weigh_known(sum(map(len, body))))
        if helped is compacted:
            return attempt
        call.ledger.note(call.attempt, helped.limit_tokens, helped.decisions[len(compacted.decisions) :])
        outcome = OUTCOME if attempt.outcome == "unchanged" else attempt.outcome
        return replace(attempt, outcome=outcome, compacted=helped, body=helped.pieces, plain=attempt)
    return attempt


def drop_refused(attempt: Prepared, opening: Opening) -> Prepared | None:
    """The attempt without its additions, if the upstream's refusal names one of them; else None."""
    call, named = attempt.call, _find_named(attempt, opening)
    plain = _leave_untold(attempt) if THINKING in named else attempt.plain
    if plain is None or not named:
        return None
    tokens, limit_tokens = plain.compacted.sent_tokens, plain.compacted.limit_tokens
    reason = f"the upstream refused {', '.join(sorted(named))}; sent again without"
    call.ledger.note(call.attempt, limit_tokens, [Decision(REFUSED, reason, tokens, tokens, 0, 0)])
    request = replace(call.request, cache=NO_HELP, takes_binding=THINKING not in named)
    return replace(plain, call=replace(call, request=request), dropped=named)


def _leave_untold(attempt: Prepared) -> Prepared | None:
    """The attempt without what the provider is told of a changed transcript; None if it is told nothing."""
    compacted = attempt.compacted
    if compacted.untold is None:
        return None
    decisions = tuple(decision for decision in compacted.decisions if decision.rule != THINKING)
    left = replace(compacted, pieces=compacted.untold, untold=None, headers=(), decisions=decisions)
    return replace(attempt, compacted=left, body=left.pieces, plain=None)


def learn_refused(services: Services, attempt: Prepared, opening: Opening, route: Route) -> None:
    """Remember what was refused, now that the upstream does not refuse the attempt without it.

    A refusal may quote the client's text. Such a text is still named in the refusal of the attempt without additions.
    """
    if attempt.dropped and not _find_names(attempt.dropped, opening):
        services.refused_additions.keep(name_asked(attempt.call.arrival, route), attempt.dropped)


def _find_named(attempt: Prepared, opening: Opening) -> frozenset[Addition]:
    """The additions of an attempt that a refusal names."""
    added = {name for name in NAMES if any(name == decision.rule for decision in attempt.compacted.decisions)}
    return _find_names(frozenset(added), opening)


def _find_names(added: frozenset[Addition], opening: Opening) -> frozenset[Addition]:
    if opening.status not in REFUSING_STATUSES:
        return frozenset()
    return frozenset(name for name in added if NAMES[name] in opening.text)
