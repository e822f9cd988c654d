"""Text of others that stands in what trimtab writes: our own headings and markers in it are broken.

Law: what comes out holds none of our headings, in whatever letters, signs and blanks they are spelled, and a quoted
line none of our markers either. Text without them stays as it is. Linear in the text; breaking twice changes nothing.
"""

import re
import unicodedata
from collections.abc import Iterator

from rules.results.tidy.terminal import strip_escapes

HEADINGS = (
    "Summary of the earlier part of this conversation",
    "Messages of the user from that part",
    "what tools and the assistant wrote",
    "go on from the summary above",
    "this is a list made from them",
    "Requests, oldest first",
)
"""The words by which what we write introduces a summary, the user's words, a quotation and its end."""
BROKEN_HEADING = "(quoted heading)"
BROKEN_MARKER = "[quoted trimtab"

_OPENING = frozenset(
    "[\uff3b\ufe47\u3010\u3014\u3016\u3018\u301a\u27e6\u27ec\u2045\u2772\u298b\u298d\u298f\u2997\u300c\u300e\uff62"
    "\u2308\u230a\u23a1\u23a2\u23a3\u2e22\u2e24\u27e8\u3008\u300a<"
)
"""Signs that look like the one by which a marker begins."""
_NO_MARKER = frozenset("\"'`/.\\,")
"""Behind an opening sign they tell a list, a path or a quoted word from a marker."""
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800"
    "\u3164\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Control characters, and what takes no room on a page: tags and fillers, too, but not the joiners that scripts and
emoji need."""

# Source: what confusables.txt of Unicode (UTS 39) gives for a to z in Cyrillic, Greek and Latin, and the letters in
# squares, circles, flags and tags. NFKD leaves them all alone.
_LOOK_ALIKES: dict[int, str] = {
    **dict(zip(map(ord, "авгґеһіјкӏмнпорԛѕтуԝхѵьԁс"), "abrrehijklmhnopqstywxvbdc", strict=True)),
    **dict(zip(map(ord, "АВЕНІЈКМОРЅТУХСԀԜѴӀҺԚ"), "abehijkmopstyxcdwvihq", strict=True)),
    **dict(zip(map(ord, "αβγεηικμνορστυχωϲϳ"), "abyenikuvopotuxwcj", strict=True)),
    **dict(zip(map(ord, "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ"), "abezhikmnoptyx", strict=True)),
    **dict(zip(map(ord, "ıɑɡɩøđħłŧɨƚ"), "iagiodhltil", strict=True)),
    **dict(zip(map(ord, "ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ"), "abcdefghijklmnoprstuvwyz", strict=True)),
    **{
        first + number: letter
        for first in (0x1F150, 0x1F170, 0x1F1E6, 0xE0041, 0xE0061)
        for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz")
    },
    0x115F: "",
    0x1160: "",
}
_LOOKS_ALIKE = re.compile(f"[{''.join(map(chr, _LOOK_ALIKES))}]")
_SIGNS = re.compile(r"[\W_]+")
_ASCII_SIGNS = bytes(code for code in range(128) if not chr(code).isalnum())


def _spell(text: str) -> str:
    """The letters and digits of a text alone, those that look alike as one."""
    if text.isascii():
        return text.encode().lower().translate(None, _ASCII_SIGNS).decode()
    plain = unicodedata.normalize("NFKD", text)
    if _LOOKS_ALIKE.search(plain):
        plain = plain.translate(_LOOK_ALIKES)
    return _SIGNS.sub("", plain.casefold())


_NAME = "trimtab"
_SPELLED_HEADINGS = tuple(map(_spell, HEADINGS))
_HEADING = re.compile("|".join(_SPELLED_HEADINGS))
_HEADING_OR_NAME = re.compile("|".join((*_SPELLED_HEADINGS, _NAME)))


def break_headings(text: str) -> str:
    """The text with `(quoted heading)` in the place of each of our headings; markers of other kinds stay."""
    spelled = _spell(text)
    return _break(text, _HEADING) if any(heading in spelled for heading in _SPELLED_HEADINGS) else text


def break_markers(text: str) -> str:
    """The same, and `[quoted trimtab` in the place of what begins a marker."""
    spelled = _spell(text)
    is_suspect = any(words in spelled for words in (_NAME, *_SPELLED_HEADINGS))
    return _break(text, _HEADING_OR_NAME) if is_suspect else text


def quote_line(text: str, chars: int) -> str:
    """The beginning of a text as one line of at most `chars` characters, without markers and what nobody sees."""
    line = " ".join(strip_escapes(text[: chars * 4], repaint=False).split())
    line = break_markers(_UNSEEN.sub("", line))
    return line if len(line) <= chars else line[:chars] + "…"


def _break(text: str, words: re.Pattern[str]) -> str:
    pieces: list[str] = []
    stop = 0
    for start, end, instead in _find(text, words):
        pieces += (text[stop:start], instead)
        stop = max(stop, end)
    return "".join((*pieces, text[stop:]))


def _find(text: str, words: re.Pattern[str]) -> Iterator[tuple[int, int, str]]:
    """Where headings and the beginnings of markers stand in a text, and what is to stand there instead."""
    known: dict[str, str] = {}
    places: list[int] = []
    spelled: list[str] = []
    for place, char in enumerate(text):
        letters = known.get(char)
        if letters is None:
            letters = known[char] = _spell(char)
        if letters:
            spelled.append(letters)
            places.extend([place] * len(letters))
    for match in words.finditer("".join(spelled)):
        start, end = places[match.start()], places[match.end() - 1] + 1
        if match.group() != _NAME:
            yield start, end, BROKEN_HEADING
            continue
        before = places[match.start() - 1] + 1 if match.start() else 0
        opening = _find_opening(text, before, start)
        if opening is not None:
            yield opening, end, BROKEN_MARKER


def _find_opening(text: str, start: int, stop: int) -> int | None:
    """The last opening sign among the signs text[start:stop]; None if what is behind it makes it none."""
    for place in range(stop - 1, start - 1, -1):
        if text[place] in _OPENING:
            return place
        if text[place] in _NO_MARKER:
            return None
    return None
