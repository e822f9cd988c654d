"""Shorten a sentence: drop greetings, fillers and parts without facts.

Law: no word is added or moved. Negations are never dropped, and neither are conditions that name something. Linear in
the text.
"""

import re
from collections.abc import Sequence

from rules.summary.digest.facts import Census, read_words

_ENDS = (".", "!", "?", "…", "。", "！", "？")
MIN_WEIGHT = 0.45
"""Minimum weight (facts.py) of a part of a sentence that is kept. Chosen."""
MIN_CHARS = 40
"""In shorter sentences only leading words are dropped. Chosen: dropping other parts would save little."""

_PART = re.compile(r"(?<=[,;:]) |(?<=[，；：]) ?| (?=[—–] )")
_DENIES = re.compile(
    r"""\b(?:not|no|nor|never|without|nobody|nothing|nicht|kein\w*|nie|niemals|ohne|ne|pas|jamais|sans|nunca|sin)\b
    |\b(?:не|нет|без)\b
    |n't\b|不|没|沒|無|ない""",
    re.VERBOSE | re.IGNORECASE,
)
_LIMITS = re.compile(
    r"""\W{0,9}(?:(?:and|but|so|or|und|aber|oder|et|mais|pero|y)\ )?
    (?:(?:if|unless|except|only|until|till|when|while|but|instead|though|although|rather|before|after|in\ case
    |wenn|falls|außer|nur|bis|sondern|aber|obwohl|bevor|nachdem|si|sauf|sino|salvo|hasta|если|кроме)\b
    |如果|除非|但|只|除了|もし|ただし)""",
    re.VERBOSE | re.IGNORECASE,
)
"""Words that begin a condition or another limit on what the rest of the sentence says."""
LIMIT_WEIGHT = 0.1
"""Minimum weight of a limiting part that is kept. Chosen: low, so that only a part that names nothing is dropped."""
_LEAD = re.compile(
    r"""(?:[^,;:]{0,80}?\b(?:found(?:\ out)?|know|remember|note|notice|noticed|confirm|confirmed|see|saws?|said|heard
        |told\ (?:me|you|us)|turns\ out|turned\ out|learned|checked|forget|mention|mentioned|aware|sure)\ that
    |[^,;:]{0,80}?\b(?:weißt|merke?\ dir|gefunden|bestätigen|sehe|gehört|gesagt|heraus|wissen),\ dass
    |(?:okay|ok|oh|ach|well|yes|yeah|sure|right|great|good|fine|so|also|ja|gut|klar|prima|übrigens|nun|und|and|but
        |by\ the\ way|please\ note|before\ i\ forget(?:\ it)?(?:\ again)?|bevor\ ich\ es(?:\ wieder)?\ vergesse
        |in\ short|to\ sum\ up|kurz\ gesagt)(?:,|(?=\ (?:and|but)\b))
    |(?:and|but|so|und|aber)(?=\ ))\ """,
    re.VERBOSE | re.IGNORECASE,
)
"""Leading words without content, such as "I found out that". They are dropped unless a word of _HEDGE is among them."""
_HEDGE = re.compile(
    r"n't\b|\b(?:not|never|no|nobody|unless|if|whether|once|when|wrong|nicht|kein\w*|nie|niemand|ob|wenn|falsch)\b",
    re.IGNORECASE,
)
_CJK_LEAD = re.compile(
    r"(?:顺便说一下|顺便提一下|对了|另外|其实|好的|嗯|总之|简单来说|告诉你一声|请记住|請記住|順便說一下|ところで|ちなみに)[，,：:、]?"
)
_ARTICLE = re.compile(r"(?:(?<=\s)|\A)[Tt]he (?=\S)")


def shorten(sentence: str, census: Census) -> str:
    """Return the sentence without leading words and parts that carry no information; never empty.

    The result ends with a full stop or the like, or gets a semicolon, so that it can be joined to others.
    """
    parts = (
        _drop_parts([part for part in _PART.split(sentence) if part], census)
        if len(sentence) > MIN_CHARS
        else [sentence]
    )
    glue = "" if _is_dense(sentence) else " "
    text = _drop_leads(glue.join(parts))
    text = _ARTICLE.sub("", text).rstrip(",;:，；： ") or sentence
    return text if text.endswith(_ENDS) else text + ";"


def _is_dense(text: str) -> bool:
    """Whether a text is written without spaces between words."""
    return any("\u3040" <= char <= "\u9fff" for char in text[:200]) and text.count(" ") < len(text) / 12


def _drop_parts(parts: Sequence[str], census: Census) -> Sequence[str]:
    """The parts from the first to the last that carry information, and all negations and limits outside them.

    If no part carries information, all parts.
    """
    if len(parts) == 1:
        return parts
    weights = [census.weigh(part, read_words(part)) for part in parts]
    telling = [index for index, weight in enumerate(weights) if weight >= MIN_WEIGHT]
    if not telling:
        return parts
    first, last = telling[0], telling[-1]
    return [
        part
        for index, part in enumerate(parts)
        if first <= index <= last or _DENIES.search(part) or (_LIMITS.match(part) and weights[index] >= LIMIT_WEIGHT)
    ]


def _drop_leads(text: str) -> str:
    lead = _CJK_LEAD.match(text)
    while lead is not None and lead.end() < len(text):
        text = text[lead.end() :]
        lead = _CJK_LEAD.match(text)
    lead = _LEAD.match(text)
    while lead is not None and lead.end() < len(text) and _HEDGE.search(lead[0]) is None:
        text = text[lead.end() :]
        lead = _LEAD.match(text)
    return text
