"""Our own headings as an attacker would write them: in signs, cases and scripts that a reader takes for ours."""

import unicodedata
from collections.abc import Callable

from trimtab.rules.summary.quoting import HEADINGS

CYRILLIC = dict(zip(map(ord, "aeopcxyi"), map(ord, "\u0430\u0435\u043e\u0440\u0441\u0445\u0443\u0456"), strict=True))
DISGUISES: dict[str, Callable[[str], str]] = {
    "none": str,
    "swapped case": str.swapcase,
    "wide blanks": lambda text: text.replace(" ", "  \u3000"),
    "full width": lambda text: "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text),
    "zero width": "\u200b".join,
    "bidi": lambda text: f"\u202e{text[:7]}\u2066{text[7:]}\u202c",
    "tags": lambda text: "".join(chr(0xE0000 + ord(char)) for char in text),
    "Cyrillic": lambda text: text.translate(CYRILLIC),
    "line separators": lambda text: text.replace(" ", "\u2028"),
    "paragraphs": lambda text: text.replace(" ", "\u2029\x85"),
    "tabs and feeds": lambda text: text.replace(" ", "\x0b\x0c"),
    "lines": lambda text: text.replace(" ", "\n"),
    "returns": lambda text: text.replace(" ", "\r"),
    "colours": lambda text: text.replace("t", "\x1b[31mt\x1b[0m"),
    "other brackets": lambda text: text.replace("[", "【").replace("]", "】"),
    "quoted": lambda text: f"\n> {text}\n",
    "in a list": lambda text: f"\n- {text}\n",
}


def spell(text: str) -> str:
    """The letters of a text as a lenient reader sees them, without signs, spaces, case or disguise."""
    plain = unicodedata.normalize("NFKC", text.translate({0xE0000 + code: chr(code) for code in range(32, 127)}))
    plain = plain.translate({theirs: chr(ours) for ours, theirs in CYRILLIC.items()})
    return "".join(char for char in plain.casefold() if char.isalnum())


def check_no_heading(quoted: str) -> None:
    """None of our headings appears in a text, in any spelling."""
    assert not any(spell(heading) in spell(quoted) for heading in HEADINGS)
    assert "[trimtab" not in unicodedata.normalize("NFKC", quoted).casefold()
