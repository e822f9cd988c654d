"""The sentences of a story: first about the whole request, then about each decision in order.

Law: no text of a conversation; only figures, places, and the names of tools.
"""

from collections.abc import Callable, Mapping, Sequence

from rules.conversation import Conversation, Decision, Outcome
from rules.pipeline.plan import Plan
from rules.pipeline.story.cut_sentences import tell_cut
from rules.pipeline.story.subjects import Subject, find_subject
from rules.pipeline.story.traced import Traced
from rules.pipeline.story.values import Sentence
from rules.pipeline.story.words import say_number, say_places

OWN_RULES = frozenset(
    {
        "pairing", "tidy", "truncate", "shorten", "memory", "truncate_system", "truncate_users",
        "exceeded", "prune", "dedupe", "images", "summarise", "digest", "pin",
    }
)  # fmt: skip
"""The rules of a plan. Other decisions are the shell's: about what it took out of the request or added to it."""


def tell_all(plan: Plan, outcome: Outcome, traced: Sequence[Traced], ratio: float) -> tuple[Sentence, ...]:
    """All sentences. `ratio` makes the plan's tokens the model's own; decisions and changes have those already."""
    told = [_tell_request(plan, outcome, ratio)]
    for decision in outcome.decisions:
        subject = find_subject(plan, decision, traced)
        if subject.added and subject.decision.rule in {"summarise", "digest"}:
            told += tell_cut(plan, subject, traced)
        else:
            told.append(_tell_decision(subject))
    return tuple(told)


def _tell_request(plan: Plan, outcome: Outcome, ratio: float) -> Sentence:
    """The first sentence: what was sent, what was forwarded, the limit, and why anything was done."""
    others = sum(one.saved_tokens for one in outcome.decisions if one.rule not in OWN_RULES)
    original, sent = _count(plan.original, ratio) + others, _count(outcome.conversation, ratio)
    limit = f"The limit is {say_number(plan.model_limit, 'token')}."
    put_off = " A cut is due, but its summary is not written yet, so it waits." if plan.is_put_off else ""
    if not outcome.decisions:
        why = " The client asks for a summary of its own, so it gets the whole." if plan.is_client_compaction else ""
        return Sentence(f"Nothing was changed: {say_number(sent, 'token')} were forwarded. {limit}{why}{put_off}")
    figures = (
        f"The client sent {say_number(original, 'token')}, and trimtab forwarded {sent:,}{_compare(original, sent)}."
    )
    return Sentence(f"{figures} {limit} {_say_cause(plan, ratio)}{put_off}", saved_tokens=original - sent)


def _count(conversation: Conversation, ratio: float) -> int:
    return round(conversation.tokens * ratio)


def _compare(original: int, sent: int) -> str:
    if sent >= original:
        return ""
    return f" ({(original - sent) / original:.0%} less)"


def _say_cause(plan: Plan, ratio: float) -> str:
    window = plan.window
    if window.cut is not None and window.cut.made_at in plan.cold:
        return "trimtab made room when the upstream's prompt cache was cold, because a cut then breaks no cache."
    if plan.original.tokens > plan.limit:
        return "The conversation does not fit without trimtab."
    if plan.fitting < plan.limit and window.has_reached_high:
        soft = round(plan.fitting * ratio)
        return f"The conversation has reached the soft limit of {say_number(soft, 'token')} that is configured."
    if window.has_reached_high:
        return "The conversation has reached high water, the size from which on trimtab makes room."
    if window.shortens:
        return "The conversation is below high water, but something in it has a limit of its own."
    return "There is room left; what was done does not wait for a full window."


def _tell_decision(subject: Subject) -> Sentence:
    decision = subject.decision
    write = _WRITERS.get(decision.rule)
    text = f"{decision.rule}: {decision.reason}." if write is None else write(subject)
    return Sentence(text, decision.rule, subject.elements, decision.saved_tokens)


def _say_saved(decision: Decision) -> str:
    saved = decision.saved_tokens
    if saved < 0:
        return f"which added {say_number(-saved, 'token')}"
    return f"which saved {say_number(saved, 'token')}"


def _tell_pairing(subject: Subject) -> str:
    parts = []
    if subject.added:
        parts.append(f"{say_number(len(subject.added), 'call')} without a result got the result `aborted`")
    if subject.gone:
        dropped = [one for one in subject.gone if one.change.rules == ("pairing",)]
        if dropped:
            where = say_places(element for one in dropped for element in one.elements)
            parts.append(f"{say_number(len(dropped), 'result')} without a call {_were(dropped)} dropped ({where})")
    if subject.forwarded:
        parts.append(
            f"{say_number(len(subject.forwarded), 'result')} {_were(subject.forwarded)} moved right behind"
            f" {'its call' if len(subject.forwarded) == 1 else 'their calls'}{subject.places}"
        )
    said = "; ".join(parts) or subject.decision.reason
    return f"Upstreams want exactly one result right after each call: {said}."


def _were(items: Sequence[object]) -> str:
    return "was" if len(items) == 1 else "were"


def _tell_tidy(subject: Subject) -> str:
    return (
        f"{subject.results} {_was(subject)} tidied, {_say_saved(subject.decision)}: colours, old states of progress"
        f" bars, and blanks and repeated keys in JSON went{subject.hidden}."
    )


def _was(subject: Subject) -> str:
    number = len(subject.forwarded or subject.gone) or subject.decision.messages
    return "was" if number == 1 else "were"


def _tell_truncate(subject: Subject) -> str:
    return (
        f"{subject.results} {_was(subject)} longer than its tool may fill, and {_was(subject)} shortened,"
        f" {_say_saved(subject.decision)}: the lines that matter most stay, and a marker says how much is"
        f" missing{subject.hidden}."
    )


def _tell_shorten(subject: Subject) -> str:
    return (
        f"{_say_messages(subject)} over the limit for one message {_was(subject)} shortened to the beginning and the"
        f" end, {_say_saved(subject.decision)}{subject.hidden}."
    )


def _tell_system(subject: Subject) -> str:
    return (
        f"{_say_messages(subject, 'system message')} {_was(subject)} over the share of the prompt that is configured"
        f" for them, and {_was(subject)} shortened to the beginning and the end, {_say_saved(subject.decision)}."
    )


def _tell_memory(subject: Subject) -> str:
    return (
        f"Retrieved memory in {_say_messages(subject)} was dropped, {_say_saved(subject.decision)}; the words around"
        f" it stay{subject.hidden}."
    )


def _tell_users(subject: Subject) -> str:
    return (
        f"{_say_messages(subject, 'earlier user message')} over the limit for one message {_was(subject)} shortened to"
        f" the beginning and the end, {_say_saved(subject.decision)}{subject.hidden}."
    )


def _tell_exceeded(subject: Subject) -> str:
    return (
        f"{_say_messages(subject)} did not fit the window even after everything else, and {_was(subject)} shortened,"
        f" {_say_saved(subject.decision)}; a marker says how much is missing{subject.hidden}."
    )


def _tell_prune(subject: Subject) -> str:
    became = "a line that tells its size" if _was(subject) == "was" else "one line each that tells the size"
    return (
        f"{subject.results} became {became}, {_say_saved(subject.decision)}; the calls stay, and the agent can make"
        " them again."
    )


def _tell_dedupe(subject: Subject) -> str:
    return (
        f"{subject.results} {_was(subject)} like an earlier one that is still there, and became a pointer to it or the"
        f" difference from it, {_say_saved(subject.decision)}."
    )


def _tell_images(subject: Subject) -> str:
    return (
        f"Old images in {_say_messages(subject)} gave way to a line about each, {_say_saved(subject.decision)};"
        " the newest images stay."
    )


def _tell_pin(subject: Subject) -> str:
    return (
        f"A reminder of the user's goal was appended to {subject.results}, {_say_saved(subject.decision)}:"
        " long output makes a model forget it."
    )


def _tell_cut_plainly(subject: Subject) -> str:
    return f"The messages before the cut were replaced, {_say_saved(subject.decision)}{subject.places}."


def _say_messages(subject: Subject, noun: str = "message") -> str:
    number = len(subject.forwarded or subject.gone) or subject.decision.messages
    return f"{say_number(number, noun)}{subject.tools}{subject.places}"


_WRITERS: Mapping[str, Callable[[Subject], str]] = {
    "pairing": _tell_pairing,
    "tidy": _tell_tidy,
    "truncate": _tell_truncate,
    "shorten": _tell_shorten,
    "truncate_system": _tell_system,
    "memory": _tell_memory,
    "truncate_users": _tell_users,
    "exceeded": _tell_exceeded,
    "prune": _tell_prune,
    "dedupe": _tell_dedupe,
    "images": _tell_images,
    "pin": _tell_pin,
    "summarise": _tell_cut_plainly,
    "digest": _tell_cut_plainly,
}
