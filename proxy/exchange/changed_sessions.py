"""Remembers the sessions whose upstream has refused thinking that was written behind other messages.

Law: what is remembered only says what the upstream must be told. A session that is forgotten costs one refusal.
"""

from dataclasses import replace

from proxy.compaction.compactor import Planned
from proxy.exchange.attempt import Call
from proxy.exchange.services import Services


def tell_changed(planned: Planned) -> Planned:
    """The plan for a session whose upstream must be told that what was sent before was changed."""
    return replace(planned, plan=replace(planned.plan, was_otherwise=True))


def heed_changed(services: Services, call: Call, planned: Planned) -> Planned:
    """The plan, for a session that `note_changed` knows as one whose upstream must be told."""
    return tell_changed(planned) if _name_changed(call, planned) in services.changed_sessions else planned


def note_changed(services: Services, call: Call, planned: Planned) -> None:
    """Remember that the upstream must be told in this session."""
    services.changed_sessions[_name_changed(call, planned)] = True


def _name_changed(call: Call, planned: Planned) -> tuple[str, str, bytes]:
    """The name of a session for what must be remembered of it: what its transcript has up to its first reasoning."""
    plan = planned.plan
    reasons = (at for at, message in enumerate(plan.conversation.messages, 1) if message.has_reasoning)
    return call.arrival.tenant.id, call.route.upstream.base_url, plan.hashes[next(reasons, 0)]
