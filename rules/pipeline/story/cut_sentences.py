"""The sentences about a cut: what stands for what, what stays word for word, and since when it is due.

Law: no text of a conversation.
"""

from collections.abc import Iterator, Sequence

from rules.conversation import count_leading
from rules.pipeline.plan import Plan
from rules.pipeline.story.subjects import Subject
from rules.pipeline.story.traced import Traced, list_elements, list_places
from rules.pipeline.story.values import OUTSIDE, Fate, Sentence
from rules.pipeline.story.words import say_list, say_number, say_places
from rules.window.state import Cut, CutKind


def tell_cut(plan: Plan, subject: Subject, traced: Sequence[Traced]) -> Iterator[Sentence]:
    """What stands for what, what stays, and since when. The changes are in the model's own tokens."""
    cut, rule = plan.window.cut, subject.decision.rule
    if cut is None:
        return
    gone = list_places(subject.gone)
    yield Sentence(_tell_what(subject, cut), rule, gone, subject.decision.saved_tokens)
    yield Sentence(_tell_rest(plan, cut, traced), rule, tuple(sorted(_find_kept(plan, cut))))
    yield Sentence(_tell_when(plan, cut), rule)


def _tell_what(subject: Subject, cut: Cut) -> str:
    gone = [one for one in subject.gone if one.elements]
    summary = next((one.change for one in subject.added if one.is_summary), None)
    tokens = sum(one.change.tokens_before for one in gone)
    size = "" if summary is None else f" of {say_number(summary.tokens_after, 'token')}"
    by_model = subject.decision.rule == "summarise"
    what = (
        f"A summary{size} that a model wrote" if by_model else f"A digest{size}, which trimtab makes without a model,"
    )
    why = ""
    if not by_model and cut.kind is CutKind.SUMMARISE:
        why = " No summary of a model was there for it."
    return (
        f"{what} stands for {say_number(len(list_places(gone)), 'message')} of {say_number(tokens, 'token')}"
        f" ({say_places(list_places(gone))}).{why}"
    )


def _tell_rest(plan: Plan, cut: Cut, traced: Sequence[Traced]) -> str:
    """What stays of the part before the cut, and what follows the cut."""
    leading = count_leading(plan.conversation.messages)
    parts = ["the system prompt"] if leading else []
    parts += _list_kept(plan, cut, list_places(one for one in traced if one.change.fate is Fate.REMOVED))
    behind = {element for index in range(cut.at, len(plan.conversation.messages)) for element in _list(plan, index)}
    parts.append("the newest message" if len(behind) == 1 else f"the newest {say_number(len(behind), 'message')}")
    head = {element for index in range(leading) for element in _list(plan, index)}
    kept, changed = head | behind | _find_kept(plan, cut), {Fate.SHORTENED, Fate.PRUNED}
    is_changed = any(one.change.fate in changed and kept & set(one.elements) for one in traced)
    said = say_list(parts)
    verb = "stay" if len(parts) > 1 or len(behind) > 1 else "stays"
    unless = ", except for what the other sentences tell" if is_changed else ""
    return f"{said[:1].upper()}{said[1:]} {verb} word for word{unless}."


def _list_kept(plan: Plan, cut: Cut, removed: Sequence[int]) -> list[str]:
    """What stays of the part before the cut. `removed`: messages that a dialect leaves out in spite of the cut."""
    task, parts = plan.window.task, []
    if task is not None and task < cut.at:
        parts.append(f"the task statement ({_say_at(plan, [task])})")
    if cut.opening >= 0:
        parts.append(f"the client's own summary of an earlier session ({_say_at(plan, [cut.opening])})")
    if cut.kept:
        parts.append(f"{say_number(len(cut.kept), 'user message')} from before the cut ({_say_at(plan, cut.kept)})")
    systems = [index for index in cut.kept_systems if not set(_list(plan, index)) & set(removed)]
    if systems:
        parts.append(f"{say_number(len(systems), 'system message')} from there ({_say_at(plan, systems)})")
    if cut.kept_steps:
        steps = [index for step in cut.kept_steps for index in range(*step)]
        number = say_number(len(cut.kept_steps), "repeated call")
        parts.append(f"{number} with their results ({_say_at(plan, steps)})")
    return parts


def _tell_when(plan: Plan, cut: Cut) -> str:
    """Since when the cut is due. Whether an earlier request had it is not known here: it may have been put off."""
    # What was added in a repair has no place: it is no message of the client.
    if not any(_list(plan, at) for at in range(cut.made_at, len(plan.conversation.messages))):
        return "The cut takes effect with this request."
    places = (element for at in range(cut.made_at - 1, -1, -1) for element in _list(plan, at)[-1:])
    since = next((place for place in places if place != OUTSIDE), None)
    when = "an earlier message" if since is None else f"message {since}"
    return (
        f"The cut is due since {when}, and stays where it is until the next one, so that the upstream's prompt cache"
        " stays valid."
    )


def _find_kept(plan: Plan, cut: Cut) -> set[int]:
    """The elements from before the cut that stay."""
    indexes = {*cut.kept, *cut.kept_systems, *(index for step in cut.kept_steps for index in range(*step))}
    indexes |= {at for at in (plan.window.task, cut.opening) if at is not None and 0 <= at < cut.at}
    return {element for index in indexes for element in _list(plan, index)}


def _say_at(plan: Plan, indexes: Sequence[int]) -> str:
    return say_places(element for index in indexes for element in _list(plan, index))


def _list(plan: Plan, index: int) -> tuple[int, ...]:
    origins = plan.conversation.origins
    return list_elements(origins[index]) if 0 <= index < len(origins) else ()
