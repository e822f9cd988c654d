"""Lines of the removed messages that a cut carries over word for word: the user's corrections, and code of late calls.

A model's note may have lost what the user corrected or ruled. And a model writes the same script or patch again with
small changes, so it needs more of it than the names.

Laws: a function of the messages. A sentence of the user is taken whole, as one line, or left out. Of code, the newest
call comes first, the lines of a call in their order. A line is whole and has a name that the reader does not see yet.
No line comes twice, and none that is in the calls of the tail. Linear, and only READ_CHARS characters are read.
"""

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from trimtab.rules.conversation import Message
from trimtab.rules.summary.anchors.names import READ_CHARS, find_names, read_arguments
from trimtab.rules.summary.digest.statements import find_statements, shorten
from trimtab.rules.summary.quoting import quote_line
from trimtab.rules.text.late import compile_late

SHOWN_CHARS = 200
"""A longer sentence is left out. Chosen: the index has room for a few sentences."""
LEAST_WEIGHT = 0.6
"""Minimum weight (digest/statements.py) of a correction. Chosen: it names something, which "no, thanks" does not."""
_CORRECTS = compile_late(
    r"""\A\W{0,4}(?:(?:no|nope|wait|nein|halt|non|não|нет)\b[,.!:;—–-]
        |(?:不|不是|不对|不對|错了|錯了|違う|いや|いいえ|아니요?)[,，。！、\ ])
    |\A\W{0,4}(?:(?:please|bitte|and|but|und|aber)\ )?(?:don't|do\ not|never|always|only|stop|nie(?:mals)?|immer|nur
        |ne\ \w+\ (?:pas|jamais)|toujours|jamais|nunca|siempre|sempre|никогда|всегда)\b
    |\A(?:请|請)?(?:不要|别|別|总是|總是|必须|必須)
    |\b(?:actually|instead|wrong|incorrect|mistaken|mixed\ up|rather\ than|from\ now\ on|must
        |eigentlich|falsch|sondern|statt(?:dessen)?|ab\ jetzt|muss|müssen|plutôt|au\ lieu|en\ fait|sino|en\ realidad
        |en\ vez|incorrecto|invece|anzi|na\ verdade|вместо|неверно|неправильно|на\ самом\ деле)\b
    |[,;—–]\ ?(?:and\ |but\ )?(?:not|nicht|pas|no|non|não|а\ не|не)\b
    |不对|不對|错了|錯了|而是|改成|改为|改為|应该是|應該是|ではなく|じゃなく|違い|間違|아니라|대신""",
    re.VERBOSE | re.IGNORECASE,
)
"""A sentence in which a user may correct something or lay down a rule: by its beginning, or by words in it."""


def find_corrections(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the user's corrections as single lines, the newest first."""
    said, _ = find_statements(messages)
    for one in reversed(said.statements):
        is_whole = len(one.text) <= SHOWN_CHARS and not one.text.endswith(("?", "？", ":", "："))
        if is_whole and _CORRECTS.search(one.text) and said.census.weigh(one.text, one.words) >= LEAST_WEIGHT:
            yield quote_line(shorten(one.text, said.census), SHOWN_CHARS + 1)


LINE_CHARS = 200
"""A longer line is left out. Chosen: it is data."""
VALUE_CHARS = 20_000
"""Characters read of one argument. Chosen: more than the index has room for."""


def find_code(
    removed: Sequence[Message], tail: Sequence[Message], present: AbstractSet[str]
) -> Iterator[tuple[str, ...]]:
    """Yield the lines of each message's calls in which an argument has several lines, the newest message first.

    A line needs a name that is not `present` (known to the reader already).
    """
    seen = {line.strip() for message in tail for line in _find_lines(message)}
    left = READ_CHARS
    for message in reversed(removed):
        left -= sum(len(call.arguments) for call in message.tool_calls)
        if left < 0:
            return
        lines: list[str] = []
        for line in _find_lines(message):
            if (bare := line.strip()) not in seen and find_names(bare) - present:
                seen.add(bare)
                lines.append(line)
        if lines:
            yield tuple(lines)


def _find_lines(message: Message) -> Iterator[str]:
    """The lines with their indentation, safe to quote; not those that are too long."""
    for value in read_arguments(message.tool_calls):
        lines = value[:VALUE_CHARS].split("\n")
        for line in lines if len(lines) > 1 else ():
            bare = line.strip()
            if bare and len(bare) <= LINE_CHARS:
                indent = len(line) - len(line.lstrip())
                yield " " * min(indent, LINE_CHARS) + quote_line(bare, LINE_CHARS * 2)
