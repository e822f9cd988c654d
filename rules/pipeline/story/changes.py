"""What became of each message: every one that is forwarded differently, and every one that trimtab made.

Law: a message that is forwarded unchanged has no change, and the tokens of all changes add up to what was saved.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rules.conversation import Message, Role
from rules.pipeline.story.alignment import CUT_RULES, Alignment
from rules.pipeline.story.attribution import find_rules
from rules.pipeline.story.reading import is_same, read_message
from rules.pipeline.story.traced import Traced, list_elements
from rules.pipeline.story.values import OUTSIDE, Change, Fate
from rules.results.calls import OpenCalls
from rules.tokens.sections import scale_parts


def trace_changes(alignment: Alignment, rules: tuple[str, ...]) -> list[Traced]:
    """The changes, ascending; an added message before the one that it stands before. `rules`: of the decisions."""
    tools = _name_tools(alignment)
    traced = [
        *_trace_messages(alignment, rules, tools),
        *_trace_added(alignment, rules),
    ]
    traced.sort(key=lambda one: (one.change.at, one.change.fate is not Fate.ADDED))
    return _settle(alignment, traced)


def scale_changes(traced: Sequence[Traced], original_tokens: int, ratio: float) -> list[Traced]:
    """The changes in the model's own tokens. They add up to what was saved, scaled and rounded.

    original_tokens: those of the client's transcript, in trimtab's own.
    """
    if ratio == 1:
        return list(traced)
    before, after = [one.change.tokens_before for one in traced], [one.change.tokens_after for one in traced]
    unchanged = original_tokens - sum(before)
    # What is unchanged comes first in both, so it is rounded alike, and the sums are those of the two transcripts.
    _, *before = scale_parts((unchanged, *before), ratio)
    _, *after = scale_parts((unchanged, *after), ratio)
    return [
        replace(one, change=replace(one.change, tokens_before=old, tokens_after=new))
        for one, old, new in zip(traced, before, after, strict=True)
    ]


def _name_tools(alignment: Alignment) -> dict[int, str]:
    """The name of the tool of each result, by the index in the client's transcript."""
    calls, paired = OpenCalls(), alignment.plan.conversation.messages
    answered = [calls.answer(message) for message in paired]
    names = {}
    for index, message in enumerate(alignment.plan.original.messages):
        if message.role is Role.TOOL:
            call = answered[alignment.paired[index]] if index in alignment.paired else None
            names[index] = call.name if call is not None else message.name or ""
    return names


def _trace_messages(alignment: Alignment, rules: tuple[str, ...], tools: dict[int, str]) -> Iterator[Traced]:
    original = alignment.plan.original
    for index, (message, origin) in enumerate(zip(original.messages, original.origins, strict=True)):
        final = alignment.find_final(index)
        at = alignment.paired.get(index, -1)
        is_elsewhere = at in alignment.joined or index in alignment.moved
        if final is not None and not is_elsewhere and is_same(final, message):
            continue
        blamed = find_rules(alignment, index, rules)
        elements = list_elements(origin)
        after_tokens = 0 if final is None else final.tokens
        change = Change(
            at=elements[0] if elements else OUTSIDE,
            role=message.role_name,
            tool=tools.get(index, ""),
            fate=_find_fate(message, final, blamed),
            rules=blamed,
            tokens_before=message.tokens,
            tokens_after=alignment.count_joined(at) if at in alignment.joined else after_tokens,
            before=read_message(message),
            after="" if final is None else read_message(final),
        )
        yield Traced(change, elements)


def _find_fate(message: Message, final: Message | None, rules: Iterable[str]) -> Fate:
    if final is None:
        return Fate.REMOVED
    if is_same(final, message):
        return Fate.MOVED
    return Fate.PRUNED if "prune" in rules else Fate.SHORTENED


def _trace_added(alignment: Alignment, rules: tuple[str, ...]) -> Iterator[Traced]:
    """The messages, and the parts of messages, that trimtab made."""
    calls, conversation = OpenCalls(), alignment.conversation
    places = _find_places_behind(alignment)
    cut_rules = tuple(dict.fromkeys(rule for rule in rules if rule in CUT_RULES))
    for place, message in enumerate(conversation.messages):
        call = calls.answer(message)
        if place in alignment.hosts and (alignment.cut is None or not alignment.adds_to(place)):
            continue
        texts = alignment.find_added(place)
        if not texts:
            continue
        is_result = message.role is Role.TOOL
        change = Change(
            at=places[place],
            role=message.role_name,
            tool=call.name if is_result and call is not None else "",
            fate=Fate.ADDED,
            rules=("pairing",) if is_result else cut_rules,
            tokens_before=0,
            tokens_after=alignment.count_added(place),
            after="\n".join(texts),
        )
        yield Traced(change)


def _find_places_behind(alignment: Alignment) -> Sequence[int]:
    """For each forwarded message: the first element of the next message of the client behind it, or their number."""
    origins = alignment.plan.original.origins
    behind = max((origin.stop for origin in origins if origin is not None), default=0)
    places = []
    for place in range(len(alignment.conversation.messages) - 1, -1, -1):
        places.append(behind)
        if place in alignment.hosts:
            behind = list_elements(origins[alignment.hosts[place]])[0]
    return places[::-1]


def _settle(alignment: Alignment, traced: list[Traced]) -> list[Traced]:
    """Give the summary what joining messages has cost or saved, so that the sum is right to the token.

    A message that is joined to another loses its frame, and its name if it has one. The summary never gets less than
    nothing: then the joined messages give it up.
    """
    rest = alignment.plan.original.tokens - alignment.conversation.tokens - sum(one.saved_tokens for one in traced)
    order = [index for index, one in enumerate(traced) if one.is_summary]
    order += [index for index, one in enumerate(traced) if one.change.fate is Fate.MOVED and one.change.tokens_after]
    for index in order:
        change = traced[index].change
        tokens = max(change.tokens_after - rest, 0)
        rest -= change.tokens_after - tokens
        traced[index] = replace(traced[index], change=replace(change, tokens_after=tokens))
    return traced
