"""Find what the user corrected or ruled in the removed messages, which a model's note may have lost.

Law: a function of the messages. A sentence is taken whole, as one line, or left out. Linear, by digest/statements.py.
"""

import re
from collections.abc import Iterator, Sequence

from trimtab.rules.conversation import Message
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
