"""Text of others that stands in what trimtab writes: our own headings and markers in it are broken.

Law: what comes out holds none of our headings, in whatever letters, signs and blanks they are spelled, and a quoted
line none of our markers either. Text without them and without sequences of terminals stays as it is. Linear in the
text; breaking twice changes nothing.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from rules.results.tidy.terminal import strip_escapes
from rules.text.markers import FILE_SUFFIX, NAMES_TITLE, TASK_LIST_TITLE

HEADINGS = (
    "earlier messages that trimtab removed",
    "End of trimtab's summary",
    "User messages from the removed part",
    "quoted from tools and assistant",
    "end of quotation",
    "continue from the summary above",
    "earlier messages were removed",
    "Requests, oldest first",
)
"""The words by which what we write introduces a summary, the user's words, a quotation and its end."""
TITLES = (TASK_LIST_TITLE, FILE_SUFFIX, NAMES_TITLE.partition(",")[0])
"""The words above what stands within a quotation: nothing that is quoted may tell of another list or file."""
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
_SIGNS = re.compile(r"[\W_]+")
_OTHER = "?"
"""Stands for any letter that looks like none of a to z."""
_ASCII_SIGNS = bytes(code for code in range(128) if not chr(code).isalnum() and chr(code) != _OTHER)
MOST_STRANGE = 64
"""Different characters that are replaced one by one; with more of them all of the text is normalised at once."""


@lru_cache(maxsize=8192)
def _spell(char: str) -> str:
    """The letters and digits that a character looks like; none of a sign."""
    plain = unicodedata.normalize("NFKD", char).translate(_LOOK_ALIKES)
    return _SIGNS.sub("", plain.casefold())


def _spell_out(text: str) -> bytes:
    """The letters and digits of a text alone, those that look alike as one, in a fraction of the time of `_find`."""
    if not text.isascii():
        strange = [(char, spelled) for char in set(text) if char > "\x7f" and (spelled := _spell(char)).isascii()]
        if len(strange) > MOST_STRANGE:
            text = text.translate({ord(char): spelled for char, spelled in strange})
        else:
            for char, spelled in strange:
                text = text.replace(char, spelled)
    return text.replace(_OTHER, "").encode("ascii", "replace").lower().translate(None, _ASCII_SIGNS)


_NAME = "trimtab"
_SPELLED_HEADINGS = tuple(_spell(heading) for heading in (*HEADINGS, *TITLES))
_WORDS = tuple(heading.encode() for heading in _SPELLED_HEADINGS)
_HEADING = re.compile("|".join(_SPELLED_HEADINGS))
_HEADING_OR_NAME = re.compile("|".join((*_SPELLED_HEADINGS, _NAME)))


def break_headings(text: str) -> str:
    """The text with `(quoted heading)` in the place of each of our headings; markers of other kinds stay.

    Sequences of terminals, whose letters would hide those of a heading, go.
    """
    text = _strip(text)
    spelled = _spell_out(text)
    return _break(text, _HEADING) if any(words in spelled for words in _WORDS) else text


def break_markers(text: str) -> str:
    """The same, and `[quoted trimtab` in the place of what begins a marker."""
    spelled = _spell_out(text)
    is_suspect = any(words in spelled for words in (_NAME.encode(), *_WORDS))
    return _break(text, _HEADING_OR_NAME) if is_suspect else text


def quote_line(text: str, chars: int) -> str:
    """The beginning of a text as one line of at most `chars` characters, without markers and what nobody sees."""
    line = " ".join(_strip(text[: chars * 4]).split())
    line = break_markers(_UNSEEN.sub("", line))
    return line if len(line) <= chars else line[:chars] + "…"


def _strip(text: str) -> str:
    """Without sequences of terminals, those that one control character of C1 begins among them."""
    return strip_escapes(text.replace("\x9b", "\x1b["), repaint=False)


def _break(text: str, words: re.Pattern[str]) -> str:
    pieces: list[str] = []
    stop = 0
    for start, end, instead in _find(text, words):
        pieces += (text[stop:start], instead)
        stop = max(stop, end)
    return "".join((*pieces, text[stop:]))


def _find(text: str, words: re.Pattern[str]) -> Iterator[tuple[int, int, str]]:
    """Where headings and the beginnings of markers stand in a text, and what is to stand there instead."""
    places: list[int] = []
    spelled: list[str] = []
    for place, char in enumerate(text):
        letters = _spell(char)
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
