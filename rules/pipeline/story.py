"""What was done to a request, for people: sentences about the request and about each decision.

Law: pure, and total: it is told from the plan and its outcome, and decides nothing. No text of a conversation; only
figures, places, and the names of tools that look like names. Each rule writes its own sentence, beside its decision.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from trimtab.rules.conversation import Conversation, Decision, Outcome, Role, count_leading
from trimtab.rules.pipeline import appended, exceeded, shortening
from trimtab.rules.pipeline.changes import CUT_RULES, OUTSIDE, Change, Fate, find_written, list_elements, trace_changes
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.results import dedupe, pairing
from trimtab.rules.results.excerpt import SHORTEN_TELLING, TRUNCATE
from trimtab.rules.results.tidy import TIDY
from trimtab.rules.summary import splice
from trimtab.rules.text.late import compile_late
from trimtab.rules.window import prune
from trimtab.rules.window.state import Cut, CutKind

TELLINGS = {
    "pairing": pairing.TELLING,
    TIDY.rule: TIDY.telling,
    TRUNCATE.rule: TRUNCATE.telling,
    "shorten": SHORTEN_TELLING,
    shortening.MEMORY: shortening.MEMORY_TELLING,
    "truncate_system": shortening.SYSTEM_TELLING,
    shortening.TRUNCATE_USERS: shortening.USERS_TELLING,
    "exceeded": exceeded.TELLING,
    exceeded.KEEP: exceeded.KEEP_TELLING,
    "prune": prune.TELLING,
    "dedupe": dedupe.TELLING,
    "images": prune.IMAGES_TELLING,
    shortening.ARGUMENTS: shortening.ARGUMENTS_TELLING,
    "summarise": splice.SUMMARY_TELLING,
    "digest": splice.DIGEST_TELLING,
    appended.PIN: appended.PIN_TELLING,
    appended.RECALL: appended.RECALL_TELLING,
}
"""The sentences of the rules of a plan. Other decisions are the shell's: of what it took out or added."""
MAX_SPANS = 12
"""The most places that a sentence names one by one. Chosen: about a line and a half on a terminal."""
MAX_TOOLS = 4
"""The most tools that a sentence names. Chosen: agents call two or three tools for nearly everything."""
_NAME = compile_late(r"[A-Za-z0-9_.-]{1,64}")


class Sentence(msgspec.Struct, frozen=True):
    """One sentence of a story. It names tools, messages and tokens, and quotes no text of the conversation.

    rule: the decision that it tells; empty for a sentence about the whole request.
    messages: indexes in the request's own list that it is about, ascending, as in `Change.at`.
    saved_tokens: what was saved, in the model's own tokens; negative if something was added.
    """

    text: str
    rule: str = ""
    messages: tuple[int, ...] = ()
    saved_tokens: int = 0


class Story(msgspec.Struct, frozen=True):
    """What was done to a request: told in sentences, in order; and message by message."""

    sentences: tuple[Sentence, ...] = ()
    changes: tuple[Change, ...] = ()


def tell_story(plan: Plan, outcome: Outcome, *, ratio: float = 1.0) -> Story:
    """The story of a request: each message that is forwarded differently, and the sentences about it.

    outcome: the conversation that is forwarded, and all decisions in order, also those that are not the plan's. The
        figures of its decisions are in the model's own tokens, as are those of the story.
    ratio: the model's own tokens for each of trimtab's, in which the messages are counted.
    """
    changes = trace_changes(plan, outcome, ratio)
    sentences = [_tell_request(plan, outcome, ratio)]
    for decision in outcome.decisions:
        subject = _find_subject(plan, decision, changes)
        sentences.append(Sentence(_tell(subject), decision.rule, subject.elements, decision.saved_tokens))
        if decision.rule in CUT_RULES and plan.window.cut is not None:
            sentences += _tell_cut(plan, plan.window.cut, decision.rule, changes)
    return Story(tuple(sentences), changes)


def tell_decision(decision: Decision) -> str:
    """The sentence of a decision of which only the figures are known, in the model's own tokens."""
    return _tell(_Subject(decision))


class _Subject(msgspec.Struct, frozen=True):
    """The changes of one decision, as far as they are known.

    forwarded: of messages that are still forwarded. gone: of those that are not. added: of those that trimtab made.
    is_late: whether a model's summary was wanted.
    written: the results without a call that became text in a message of the user.
    """

    decision: Decision
    forwarded: tuple[Change, ...] = ()
    gone: tuple[Change, ...] = ()
    added: tuple[Change, ...] = ()
    is_late: bool = False
    written: tuple[Change, ...] = ()

    @property
    def elements(self) -> tuple[int, ...]:
        return _list_places(self.forwarded or self.gone)


def _find_subject(plan: Plan, decision: Decision, changes: Sequence[Change]) -> _Subject:
    mine = [one for one in changes if decision.rule in one.rules]
    if (
        decision.rule == shortening.MEMORY
    ):  # there may be two: about the messages at the beginning, and about the others
        leading = count_leading(plan.original.messages)
        heads = {element for origin in plan.original.origins[:leading] for element in list_elements(origin)}
        mine = [one for one in mine if (one.at in heads) is (decision.first_changed < leading)]
    elsewhere = {Fate.ADDED, Fate.REMOVED, *((Fate.MOVED,) if decision.rule in CUT_RULES else ())}
    return _Subject(
        decision,
        tuple(one for one in mine if one.fate not in elsewhere),
        tuple(one for one in mine if one.fate is Fate.REMOVED),
        tuple(one for one in mine if one.fate is Fate.ADDED),
        is_late=plan.window.cut is not None and plan.window.cut.kind is CutKind.SUMMARISE,
        written=tuple(_list_written(plan, mine)) if decision.rule == "pairing" else (),
    )


def _list_written(plan: Plan, changes: Sequence[Change]) -> Iterator[Change]:
    indexes = chain.from_iterable(find_written(plan).values())
    places = {list_elements(plan.original.origins[index]) for index in indexes}
    return (one for one in changes if one.elements in places)


def _tell(subject: _Subject) -> str:
    decision, shown = subject.decision, subject.forwarded or subject.gone
    saved = decision.saved_tokens
    is_note = any(one.is_note for one in subject.added)
    telling = splice.NOTE_TELLING if is_note else TELLINGS.get(decision.rule)
    if telling is None:
        return f"{decision.rule}: {decision.reason}{f', {_say_saved(saved)}' if saved else ''}."
    number = len(shown) or decision.messages
    return telling.sentence.format(
        what=say_number(number, telling.noun) + _say_subject(subject),
        was="was" if number == 1 else "were",
        each="" if number == 1 else " each",
        saved=_say_saved(saved),
        hidden=_say_hidden(subject),
        repairs=_say_repairs(subject),
        size=_say_size(subject),
        instead=" No summary of a model was there for it." if subject.is_late else "",
    )


def _say_saved(tokens: int) -> str:
    return f"which {'added' if tokens < 0 else 'saved'} {say_number(abs(tokens), 'token')}"


def _say_subject(subject: _Subject) -> str:
    """Of which tools the messages are and where they stand, as far as that is known."""
    decision, shown = subject.decision, subject.forwarded or subject.gone
    if not shown:
        return f" (from message {decision.first_changed} on)" if decision.messages and not subject.added else ""
    tokens = f" of {say_number(sum(one.tokens_before for one in shown), 'token')}"
    tools = say_tools(one.tool for one in shown if one.tool)
    places = say_places(subject.elements)
    of = tokens if decision.rule in CUT_RULES else f" of {tools}" if tools else ""
    return f"{of}{f' ({places})' if places else ''}"


def _say_hidden(subject: _Subject) -> str:
    """A closing part of a sentence about messages that are not forwarded any more; empty if there are none."""
    if not subject.gone:
        return ""
    if subject.forwarded:
        return f"; {len(subject.gone):,} more were shortened in the same way before the cut took them"
    return "; by now they are behind the cut"


def _say_size(subject: _Subject) -> str:
    """What the summary costs, if that is known."""
    summary = next((one for one in subject.added if one.is_summary), None)
    return "" if summary is None else f" of {say_number(summary.tokens_after, 'token')}"


def _say_repairs(subject: _Subject) -> str:
    parts, written = [], subject.written
    moved = [one for one in subject.forwarded if one not in written]
    dropped = [one for one in subject.gone if one.rules == ("pairing",) and one not in written]
    answered = [one for one in subject.added if one.role == Role.TOOL]
    if answered:
        parts.append(f"{say_number(len(answered), 'call')} without a result got the result `aborted`")
    if dropped:
        parts.append(f"{_say_results(dropped)} dropped ({say_places(_list_places(dropped))})")
    if written:
        parts.append(f"{_say_results(written)} written as a message of the user ({say_places(_list_places(written))})")
    if moved:
        behind = "was moved right behind its call" if len(moved) == 1 else "were moved right behind their calls"
        parts.append(f"{say_number(len(moved), 'result')} {behind} ({say_places(_list_places(moved))})")
    return "; ".join(parts) or subject.decision.reason


def _say_results(changes: Sequence[Change]) -> str:
    return f"{say_number(len(changes), 'result')} without a call {'was' if len(changes) == 1 else 'were'}"


def _tell_request(plan: Plan, outcome: Outcome, ratio: float) -> Sentence:
    """The first sentence: what was sent, what was forwarded, the limit, and why anything was done."""
    others = sum(one.saved_tokens for one in outcome.decisions if one.rule not in TELLINGS)
    original, sent = _count(plan.original, ratio) + others, _count(outcome.conversation, ratio)
    limit = f"The limit is {say_number(plan.model_limit, 'token')}."
    put_off = " A cut is due, but its summary is not written yet, so it waits." if plan.is_put_off else ""
    if not outcome.decisions:
        why = " The client asks for a summary of its own, so it gets the whole." if plan.is_client_compaction else ""
        return Sentence(f"Nothing was changed: {say_number(sent, 'token')} were forwarded. {limit}{why}{put_off}")
    less = f" ({(original - sent) / original:.0%} less)" if sent < original else ""
    figures = f"The client sent {say_number(original, 'token')}, and trimtab forwarded {sent:,}{less}."
    return Sentence(f"{figures} {limit} {_say_cause(plan, ratio)}{put_off}", saved_tokens=original - sent)


def _count(conversation: Conversation, ratio: float) -> int:
    return round(conversation.tokens * ratio)


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


def _tell_cut(plan: Plan, cut: Cut, rule: str, changes: Sequence[Change]) -> Iterator[Sentence]:
    """What stays word for word, and since when the cut is due."""
    leading, stop = plan.leading, len(plan.conversation.messages)
    removed = {element for one in changes if one.fate is Fate.REMOVED for element in one.elements}
    kept = list(_list_kept(plan, cut, removed))
    if not any(one.is_note for one in changes):  # only the provider knows what its note has of these
        kept = [*_list_said(plan, cut), *kept]
    head, behind = _list_elements(plan, range(leading)), _list_elements(plan, range(cut.at, stop))
    newest = "the newest message" if len(behind) == 1 else f"the newest {say_number(len(behind), 'message')}"
    parts = [*(["the system prompt"] if leading else []), *(f"{what} ({say_places(at)})" for what, at in kept), newest]
    elements = {element for _, each in kept for element in each}
    stays, changed = head | behind | elements, {Fate.SHORTENED, Fate.PRUNED}
    is_changed = any(one.fate in changed and not stays.isdisjoint(one.elements) for one in changes)
    said, unless = say_list(parts), ", except for what the other sentences tell" if is_changed else ""
    verb = "stay" if len(parts) > 1 or len(behind) > 1 else "stays"
    yield Sentence(f"{said[:1].upper()}{said[1:]} {verb} word for word{unless}.", rule, tuple(sorted(elements)))
    yield Sentence(_tell_when(plan, cut), rule)


def _list_said(plan: Plan, cut: Cut) -> Iterator[tuple[str, set[int]]]:
    """What stands in the summary's message word for word, and where it stood."""
    task = plan.window.task
    if task is not None and task < cut.at:
        yield "the task statement", _list_elements(plan, [task])
    if cut.opening >= 0:
        yield "the client's own summary of an earlier session", _list_elements(plan, [cut.opening])
    if cut.kept:
        yield f"{say_number(len(cut.kept), 'user message')} from before the cut", _list_elements(plan, cut.kept)


def _list_kept(plan: Plan, cut: Cut, removed: set[int]) -> Iterator[tuple[str, set[int]]]:
    """What stays of the part before the cut, and where it stands. A dialect may leave out a message all the same."""
    systems = [at for at in cut.kept_systems if removed.isdisjoint(_list_elements(plan, [at]))]
    if systems:
        yield f"{say_number(len(systems), 'system message')} from there", _list_elements(plan, systems)
    if cut.kept_steps:
        messages, steps = plan.conversation.messages, [at for step in cut.kept_steps for at in range(*step)]
        if wanted := [at for at in steps if messages[at].keep]:
            yield f"{say_number(len(wanted), 'message')} that the client wants kept", _list_elements(plan, wanted)
        calls = [step for step in cut.kept_steps if not any(messages[at].keep for at in range(*step))]
        if calls:
            places = [at for step in calls for at in range(*step)]
            yield f"{say_number(len(calls), 'repeated call')} with their results", _list_elements(plan, places)


def _tell_when(plan: Plan, cut: Cut) -> str:
    """Since when the cut is due. Whether an earlier request had it is not known here: it may have been put off."""
    # What was added in a repair has no place: it is no message of the client.
    if not _list_elements(plan, range(cut.made_at, len(plan.conversation.messages))):
        return "The cut takes effect with this request."
    origins = plan.conversation.origins[: cut.made_at]
    places = (element for origin in reversed(origins) for element in list_elements(origin)[-1:])
    since = next((place for place in places if place != OUTSIDE), None)
    when = "an earlier message" if since is None else f"message {since}"
    return (
        f"The cut is due since {when}, and stays where it is until the next one, so that the upstream's prompt cache"
        " stays valid."
    )


def _list_elements(plan: Plan, indexes: Iterable[int]) -> set[int]:
    origins = plan.conversation.origins
    return {element for index in indexes for element in list_elements(origins[index])}


def _list_places(changes: Iterable[Change]) -> tuple[int, ...]:
    return tuple(sorted({element for one in changes for element in one.elements}))


def say_number(number: int, one: str) -> str:
    """A number with its noun: `1 message`, `1,200 messages`."""
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def say_list(items: Sequence[str]) -> str:
    """Items in a row: `a`, `a and b`, `a, b and c`."""
    return " and ".join([*([", ".join(items[:-1])] if items[1:] else []), *items[-1:]])


def say_places(elements: Iterable[int]) -> str:
    """Indexes of messages, neighbours joined: `message 3`, `messages 3, 5 and 7-12`; empty without any."""
    inside = sorted(set(elements) - {OUTSIDE})
    spans: list[list[int]] = []
    for element in inside:
        if spans and element == spans[-1][-1] + 1:
            spans[-1][1:] = [element]
        else:
            spans.append([element])
    named = [f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans]
    if len(named) > MAX_SPANS:
        rest = sum(span[-1] - span[0] + 1 for span in spans[MAX_SPANS:])
        named = [*named[:MAX_SPANS], f"{rest:,} more"]
    return f"message{'' if len(inside) == 1 else 's'} {say_list(named)}" if inside else ""


def say_tools(names: Iterable[str]) -> str:
    """The tools of results, the most frequent first: `bash`, `bash, read_file and 3 other tools`; empty without any."""
    counted = Counter(names)
    known = [name for name, _ in sorted(counted.items(), key=lambda each: (-each[1], each[0])) if _NAME.fullmatch(name)]
    rest = len(counted) - len(known[:MAX_TOOLS])
    others = [say_number(rest, "other tool")] if rest else []
    return say_list([*known[:MAX_TOOLS], *others]) if known else ""
