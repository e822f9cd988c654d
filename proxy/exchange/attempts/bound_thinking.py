"""Sends a request again if its upstream refuses thinking that no longer fits, because of a change of trimtab's own.

What trimtab changes during a session is told at once. But nobody can tell it what was sent before it was there: a
session that began without it, or before a restart with other settings or another list of `drop_tools`.

Law: once for each request, and only one that trimtab has changed. It is sent as the client wrote it if that fits: a
refusal of the client's own bytes is the client's. Later requests of the session are told at once.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial

from proxy.compaction.offload import BusyError, weigh_known
from proxy.compaction.refusal import RefusedError
from proxy.exchange.attempts.attempt import Prepared
from proxy.exchange.attempts.cache_help import THINKING, help_cache
from proxy.exchange.attempts.changed_sessions import note_changed, tell_changed
from proxy.exchange.early_answer import Opening
from proxy.exchange.report import fail_open
from proxy.exchange.services import Services
from proxy.wire.codec import UndecodableError
from rules.conversation import Decision

_OWN = "the upstream refused thinking that no longer fits; sent again as the client wrote it"
_NAMED = (b"signature", b"thinking")
"""What such a refusal names: "Invalid `signature` in `thinking` block". Source: Anthropic's page on prefix checks."""


async def undo_refused(services: Services, attempt: Prepared, opening: Opening) -> Prepared | None:
    """The attempt as the client wrote it, or with thinking that may be dropped; None if it was not refused for that."""
    plain = attempt.plain or attempt
    call, chosen, compacted = plain.call, plain.chosen, plain.compacted
    if attempt.is_own and opening.status == 200:
        note_changed(services, call, chosen.planned)
    if not _is_refused(attempt, opening) or attempt.is_own or not compacted.decisions:
        return None
    if THINKING in {decision.rule for decision in compacted.decisions}:
        return None
    if compacted.original_tokens <= compacted.limit_tokens:
        own, limit_tokens = call.compactor.leave_alone(chosen.planned), compacted.limit_tokens
        tokens, sections = own.original_tokens, own.original_sections
        own = replace(own, decisions=(), sent_tokens=tokens, sent_sections=sections)  # with what was taken out
        call.ledger.note(call.attempt, limit_tokens, [Decision(THINKING, _OWN, compacted.sent_tokens, tokens, 0, 0)])
        return replace(plain, outcome="unchanged", compacted=own, body=None, summary=None, is_own=True)
    return await _allow_drops(services, plain)


async def _allow_drops(services: Services, plain: Prepared) -> Prepared | None:
    """The attempt with thinking that may be dropped; None if its upstream cannot be told."""
    call, chosen = plain.call, plain.chosen
    with (
        suppress(BusyError, RefusedError, UndecodableError),
        fail_open(services.recorder, call.arrival.request_id, "thinking"),
    ):
        planned = tell_changed(chosen.planned)
        work = partial(call.compactor.apply, planned, chosen.text)
        size_bytes = weigh_known(len(call.request.body))
        told = await services.workers.run_bounded(call.lane, work, size_bytes=size_bytes)
        added = [decision for decision in told.decisions if decision.rule == THINKING]
        if not added:
            return None
        note_changed(services, call, planned)
        call.ledger.note(call.attempt, told.limit_tokens, added)
        chosen = replace(chosen, planned=planned)
        return await help_cache(services, replace(plain, chosen=chosen, compacted=told, body=told.pieces))
    return None


def _is_refused(attempt: Prepared, opening: Opening) -> bool:
    return opening.status == 400 and THINKING not in attempt.dropped and all(name in opening.text for name in _NAMED)
