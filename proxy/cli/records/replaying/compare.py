"""Finds out whether a recorded request was planned again exactly as it was sent.

Law: a difference is named in words, without any text of the conversation.
"""

from proxy.account.recordings.format import Recording
from proxy.cli.records.replaying.carry_out import Carried

REPLACED = "; a credential was replaced in the recorded body"


def find_difference(recording: Recording, carried: Carried) -> str:
    """What differs between the recording and the plan that was made again; empty if nothing does."""
    difference = _compare(recording, carried)
    return difference + REPLACED if difference and recording.is_redacted else difference


def _compare(recording: Recording, carried: Carried) -> str:
    event, counted, compacted = recording.event, recording.counted, carried.compacted
    if counted.original and event.original_tokens != compacted.original_tokens:
        return f"the client's prompt has {compacted.original_tokens} tokens now, and had {event.original_tokens}"
    is_enforced = carried.way.mode == "enforce"
    sent_tokens = compacted.sent_tokens if is_enforced else compacted.original_tokens
    if counted.sent and event.sent_tokens != sent_tokens:
        return f"the prompt that is sent has {sent_tokens} tokens now, and had {event.sent_tokens}"
    now = [(one.rule, one.saved_tokens) for one in compacted.decisions]
    was = [(one.rule, one.saved_tokens) for one in counted.decisions]
    if was and now != was:
        return f"the decisions are {_name(now)} now, and were {_name(was)}"
    sent = recording.sent_body
    if sent is None or recording.sent is None:
        return ""
    body = recording.received_body if carried.body is None else carried.body
    return "the body differs" if body != sent else ""


def _name(decisions: list[tuple[str, int]]) -> str:
    return ", ".join(f"{rule} ({saved})" for rule, saved in decisions) or "none"
