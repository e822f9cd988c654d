"""The sentences about a cut: what stands for what, what stays word for word, and when it was made.

Law: no text of a conversation.
"""

from collections.abc import Iterator, Sequence

from rules.conversation import Role, count_leading
from rules.pipeline.plan import Plan
from rules.pipeline.story.subjects import Subject
from rules.pipeline.story.traced import Traced, list_elements, list_places
from rules.pipeline.story.values import OUTSIDE, Fate, Sentence
from rules.pipeline.story.words import say_list, say_number, say_places
from rules.window.state import Cut, CutKind


def tell_cut(plan: Plan, subject: Subject, traced: Sequence[Traced], ratio: float) -> Iterator[Sentence]:
    """What stands for what, what stays, and why now."""
    cut, rule = plan.window.cut, subject.decision.rule
    if cut is None:
        return
    gone = list_places(subject.gone)
    yield Sentence(_tell_what(subject, cut, ratio), rule, gone, subject.decision.saved_tokens)
    yield Sentence(_tell_rest(plan, cut, traced), rule, tuple(sorted(_find_kept(plan, cut))))
    yield Sentence(_tell_when(plan, cut), rule)


def _tell_what(subject: Subject, cut: Cut, ratio: float) -> str:
    gone = [one for one in subject.gone if one.elements]
    summary = next((one.change for one in subject.added if one.is_summary), None)
    tokens = round(sum(one.change.tokens_before for one in gone) * ratio)
    size = "" if summary is None else f" of {say_number(round(summary.tokens_after * ratio), 'token')}"
    by_model = subject.decision.rule == "summarise"
    what = (
        f"A summary{size} that a model wrote" if by_model else f"A digest{size}, which trimtab makes without a model,"
    )
    why = ""
    if not by_model and cut.kind is CutKind.SUMMARISE:
        why = " No summary of a model was there for it."
    return (
        f"{what} stands for {say_number(len(gone), 'message')} of {say_number(tokens, 'token')}"
        f" ({say_places(list_places(gone))}).{why}"
    )


def _tell_rest(plan: Plan, cut: Cut, traced: Sequence[Traced]) -> str:
    """What stays of the part before the cut, and what follows the cut."""
    leading, task = count_leading(plan.conversation.messages), plan.window.task
    parts = []
    if task is not None and task < cut.at:
        parts.append(f"the task statement ({_say_at(plan, [task])})")
    if cut.opening >= 0:
        parts.append(f"the client's own summary of an earlier session ({_say_at(plan, [cut.opening])})")
    if cut.kept:
        parts.append(f"{say_number(len(cut.kept), 'user message')} from before the cut ({_say_at(plan, cut.kept)})")
    if cut.kept_systems:
        number = say_number(len(cut.kept_systems), "system message")
        parts.append(f"{number} from there ({_say_at(plan, cut.kept_systems)})")
    if cut.kept_steps:
        number = say_number(len(cut.kept_steps), "repeated call")
        steps = [index for step in cut.kept_steps for index in range(*step)]
        parts.append(f"{number} with the results ({_say_at(plan, steps)})")
    newest = len(plan.conversation.messages) - cut.at
    parts.append(f"the newest {say_number(newest, 'message')}")
    behind = {element for index in range(cut.at, len(plan.conversation.messages)) for element in _list(plan, index)}
    kept = behind | _find_kept(plan, cut)
    changed = {Fate.SHORTENED, Fate.PRUNED}
    is_changed = any(one.change.fate in changed and kept & set(one.elements) for one in traced)
    said = say_list(parts)
    head = "The system prompt, " if leading else ""
    first = said if head else f"{said[:1].upper()}{said[1:]}"
    return f"{head}{first} stay word for word{', but for what the other sentences say' if is_changed else ''}."


def _tell_when(plan: Plan, cut: Cut) -> str:
    """When the cut was made. A cut stays at its place until the next one, so that the prompt cache stays valid."""
    messages = plan.conversation.messages
    # The request before this one had all messages before the model's last answer.
    answers = (at for at in range(len(messages) - 1, -1, -1) if messages[at].role is Role.ASSISTANT)
    asked = next(answers, 0)
    if cut.made_at > asked:
        return "The cut is new with this request: from here on, the prompt cache starts again behind the system prompt."
    behind = _list(plan, cut.made_at - 1)
    where = f" at message {behind[-1]}" if behind and behind[-1] != OUTSIDE else ""
    return f"The cut was made earlier{where}, and stays where it is, so that the upstream's prompt cache stays valid."


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
