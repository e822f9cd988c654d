"""Which rules changed a message.

Law: a function of the message at the stages that a plan keeps, and of the names of the decisions. Only tidying and
truncation have no stage between them; the text that is left tells them apart.
"""

import re
from collections.abc import Iterator

from rules.conversation import Message, Role
from rules.pipeline.plan import MEMORY, TRUNCATE_USERS
from rules.pipeline.story.alignment import CUT_RULES, Alignment
from rules.pipeline.story.reading import is_same
from rules.text.markers import POINTER, START, TABLE
from rules.window.prune import is_prunable

_MARK = re.compile(r"\[trimtab\b(?!: table\])")
_MEMORY_MARK = f"{START}retrieved memory of "
_MARKER = re.compile(r"\[trimtab[^\]\n]{0,300}\]")


def find_rules(alignment: Alignment, index: int, rules: tuple[str, ...]) -> tuple[str, ...]:
    """The rules that changed a message of the client, in the order of `rules`: the names of the decisions."""
    found = set(_find_rules(alignment, index, frozenset(rules)))
    return tuple(dict.fromkeys(rule for rule in rules if rule in found))


def _find_rules(alignment: Alignment, index: int, rules: frozenset[str]) -> Iterator[str]:
    plan, at = alignment.plan, alignment.paired.get(index)
    if at is None:
        yield "pairing"
        return
    if index in alignment.moved:
        yield "pairing"
    message, whole, short = plan.original.messages[index], plan.whole.messages[at], plan.conversation.messages[at]
    if not is_same(whole, message):
        yield from _compare(message, whole, rules, is_leading=at < alignment.leading)
    if not is_same(short, whole):
        yield "exceeded"
    final = alignment.find_final(index)
    if final is None or at in alignment.joined:
        yield from CUT_RULES
    if final is not None:
        yield from _find_late(alignment, at, short, final)


def _compare(message: Message, whole: Message, rules: frozenset[str], *, is_leading: bool) -> Iterator[str]:
    """The rules that look at a message alone."""
    if message.role is Role.TOOL:
        yield from _tell_apart(message, whole, rules)
        return
    drops = _count(whole, _MEMORY_MARK) > _count(message, _MEMORY_MARK)
    if drops:
        yield MEMORY
    if not drops or _count_marks(whole) - _count(whole, _MEMORY_MARK) > _count_marks(message):
        is_late_user = message.role is Role.USER and not is_leading
        yield TRUNCATE_USERS if is_late_user else "truncate_system" if is_leading else "shorten"


def _tell_apart(message: Message, whole: Message, rules: frozenset[str]) -> Iterator[str]:
    """Whether a result was tidied or truncated, or both."""
    before = "\n".join(message.texts)
    is_truncated = _count_marks(whole) > _count_marks(message) or _is_beginning(whole.texts, message.texts)
    is_truncated = "truncate" in rules and (is_truncated or "tidy" not in rules)
    if is_truncated:
        yield "truncate"
    pieces = (piece.strip() for text in whole.texts for piece in _MARKER.split(text))
    if not is_truncated or TABLE in whole.text or any(piece not in before for piece in pieces):
        yield "tidy"


def _is_beginning(texts: tuple[str, ...], before: tuple[str, ...]) -> bool:
    """Whether some text was cut off without a marker."""
    return any(
        len(text) < len(old) and old.startswith(text) and not old[len(text) :].isspace()
        for text, old in zip(texts, before, strict=False)
    )


def _find_late(alignment: Alignment, at: int, short: Message, final: Message) -> Iterator[str]:
    """The rules that come with a cut or after it."""
    plan = alignment.plan
    lines = [pin.line for pin in plan.pins if pin.at == at]
    if any(_ends_with(final, line) and not _ends_with(short, line) for line in lines):
        yield "pin"
    if short.role is Role.TOOL and final.texts != short.texts:
        if at in alignment.pruned and is_prunable(short):
            yield "prune"
        elif final.texts and final.texts[0].startswith(POINTER) and not short.texts[0].startswith(POINTER):
            yield "dedupe"
    if sum(part.is_removed for part in final.media) > sum(part.is_removed for part in short.media):
        yield "images"


def _ends_with(message: Message, line: str) -> bool:
    return bool(message.texts) and message.texts[-1].endswith(line)


def _count(message: Message, mark: str) -> int:
    return sum(text.count(mark) for text in message.texts)


def _count_marks(message: Message) -> int:
    return sum(len(_MARK.findall(text)) for text in message.texts)
