"""Make text of others safe to quote, and write quotations and lists of it within a budget.

Trimtab's own headings and markers in it are broken, and models' special tokens. Otherwise a tool result, or the model
that writes a summary, could imitate the end of a summary or the user's words.

Laws: the result contains none of our headings, however they are spelled (look-alike letters, signs, blanks), none of
our markers, also none that spans several rows, and no special token. A note and a quoted line contain no invisible
characters either. Text without all of these and without terminal sequences is unchanged. Linear in the text;
idempotent.

Of a list of what happened, the user's rows are plain, and all other rows are in one quotation. A row is taken whole or
left out, so the quotation is always closed. A quotation fits its budget or is empty.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from trimtab.rules.conversation import CountTokens
from trimtab.rules.results.tidy import strip_escapes
from trimtab.rules.text.head_tail import truncate_text
from trimtab.rules.text.late import compile_late
from trimtab.rules.text.markers import FILE_SUFFIX, NAMES_TITLE, QUOTE_END, QUOTE_START, TASK_LIST_TITLE
from trimtab.rules.text.payloads import find_payload

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
"""Words that introduce a summary, the user's words, a quotation and its end in texts that trimtab writes."""
TITLES = (TASK_LIST_TITLE, FILE_SUFFIX, NAMES_TITLE.partition(",")[0])
"""Words above the parts of a quotation: quoted text must not imitate another task list, file or list of names."""
BROKEN_HEADING = "(quoted heading)"
BROKEN_MARKER = "[quoted trimtab"

_OPENING = frozenset(
    "[\uff3b\ufe47\u3010\u3014\u3016\u3018\u301a\u27e6\u27ec\u2045\u2772\u298b\u298d\u298f\u2997\u300c\u300e\uff62"
    "\u2308\u230a\u23a1\u23a2\u23a3\u2e22\u2e24\u27e8\u3008\u300a<"
)
"""`[` and the signs that look like it. A marker begins with one of them."""
_NO_MARKER = frozenset("\"'`/.\\,")
"""If one of these follows the opening sign, the text is a list, a path or a quoted word, not a marker."""
_UNSEEN = compile_late(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800"
    "\u17b4\u17b5\u3164\ufeff\uffa0\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""Control characters and invisible characters (tags, fillers, halves of pairs), but not the joiners that some scripts
and emoji need."""

_UNSEEN_IN_NOTES = compile_late(f"(?![\\n\\t]){_UNSEEN.pattern}")  # As `_UNSEEN`; a note has lines
_JOINERS = compile_late(
    "(?<![^\x00-\x7f])[\u200c\u200d]+|[\u200c\u200d]+(?![^\x00-\x7f])|(?<=[\u200c\u200d])[\u200c\u200d]+"
)
"""Joiners that join nothing: beside an ASCII character or at an end, or after another joiner."""
MAX_TOKEN_CHARS = 64  # Longest name of a special token. Chosen: the longest known has 32 characters.
_TOKEN = compile_late(
    rf"""
    <(?:[|｜][^\s<>|｜]{{1,{MAX_TOKEN_CHARS}}}[|｜]?|[^\s<>|｜]{{1,{MAX_TOKEN_CHARS}}}[|｜])>
    | \[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|ARGS|CALL_ID|IMG|PREFIX
        |SUFFIX|MIDDLE|THINK|MODEL_SETTINGS|(?:BEGIN_)?AUDIO|gMASK|sMASK|BOS|EOS|CLS|SEP|MASK|PAD|UNK)\]
    | <</?SYS>>
    | <\[[^\s<>\[\]]{{1,{MAX_TOKEN_CHARS}}}\]>
    | \[e~\[ | \]~!?b\[?\]?
    | </?(?:s|bos|eos|pad|unk|mask|sop|eop|BOS_TOKEN|EOS_TOKEN|eos_token|seed:[a-z_:]{{1,32}}|role|think|start_of_turn
        |end_of_turn|end_of_utterance|start_of_image|end_of_image|extra_id_\d{{1,4}}|unused\d{{1,4}}|reserved_\d{{1,4}}
        |fim_(?:prefix|middle|suffix)|(?:minimax:)?tool_(?:call|response))>
    | (?<=\n\n)(?:Human|Assistant):
    """,
    re.VERBOSE,
)
"""What models read as the end of a turn or the beginning of another, not as text.

Source: the tokenizers and chat templates of OpenAI (`<|im_start|>`), Llama (`[INST]`, `<|eot_id|>`), Mistral, Gemma,
DeepSeek (`<｜User｜>`), GLM, Qwen (whose template drops an answer up to `</think>`), MiniMax, Seed, Baichuan, Cohere,
T5 and BERT; Anthropic's text completions (`Human:`).
"""
_TOKEN_FRAME = compile_late(r"[<>|｜\[\]]+|:\Z")

# Source: the look-alikes of a to z in Cyrillic, Greek and Latin in Unicode's confusables.txt (UTS 39), and the letters
# in squares, circles, flags and tags. NFKD changes none of them.
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
_SIGNS = compile_late(r"[\W_]+")
_OTHER = "?"  # Replaces any letter that does not look like one of a to z
_ASCII_SIGNS = bytes(code for code in range(128) if not chr(code).isalnum() and chr(code) != _OTHER)
MOST_STRANGE = 64
"""Maximum number of different characters that are replaced one by one; for more, one `translate` of the text is used.
Chosen: each replacement reads the whole text."""


@lru_cache(maxsize=8192)
def _spell(char: str) -> str:
    """The letters and digits that a character looks like; an empty text for a sign."""
    plain = unicodedata.normalize("NFKD", char).translate(_LOOK_ALIKES)
    return _SIGNS.sub("", plain.casefold())


def _spell_out(text: str) -> bytes:
    """Only the letters and digits of a text, look-alikes unified. A filter that is much cheaper than `_find`."""
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
_HEADING_OR_NAME = compile_late("|".join((*_SPELLED_HEADINGS, _NAME)))


def clean_note(text: str) -> str:
    """A text that a model wrote, without invisible characters, our headings, our markers and special tokens.

    Terminal sequences are removed first, because their letters would hide those of a heading.
    """
    text = _JOINERS.sub("", _UNSEEN_IN_NOTES.sub("", _strip(text)))
    return break_markers(text)


def break_markers(text: str) -> str:
    """Replace each of our headings by `(quoted heading)`, and the beginning of each marker by `[quoted trimtab`.

    A special token is put in parentheses: `(im_start)`.
    """
    text = _TOKEN.sub(lambda token: f"({_TOKEN_FRAME.sub('', token.group())})", text)
    spelled = _spell_out(text)
    is_suspect = any(words in spelled for words in (_NAME.encode(), *_WORDS))
    return _break(text, _HEADING_OR_NAME) if is_suspect else text


def quote_line(text: str, chars: int) -> str:
    """The beginning of a text as one line of at most `chars` characters and an ellipsis if it was cut.

    Headings, markers and special tokens are broken; invisible characters are removed. A cut line ends before a file
    that is written out in it, such as a `data:` URL: a part of one could be taken for the file.
    """
    line = " ".join(_strip(text[: chars * 4]).split())
    line = break_markers(_JOINERS.sub("", _UNSEEN.sub("", line)))
    return line if len(line) <= chars else line[: min(chars, find_payload(line))] + "…"


def _strip(text: str) -> str:
    """The text without terminal sequences, also those that begin with the C1 control character CSI."""
    return strip_escapes(text.replace("\x9b", "\x1b["), repaint=False)


def _break(text: str, words: re.Pattern[str]) -> str:
    pieces: list[str] = []
    stop = 0
    for start, end, instead in _find(text, words):
        pieces += (text[stop:start], instead)
        stop = max(stop, end)
    return "".join((*pieces, text[stop:]))


def _find(text: str, words: re.Pattern[str]) -> Iterator[tuple[int, int, str]]:
    """Find headings and beginnings of markers: (start, end, replacement), in the text's order."""
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
    """The index of the last opening sign in text[start:stop]; None if a sign after it rules out a marker."""
    for place in range(stop - 1, start - 1, -1):
        if text[place] in _OPENING:
            return place
        if text[place] in _NO_MARKER:
            return None
    return None


ROUNDS = 8
"""Maximum number of attempts to fit the budget. Rows are counted one by one, and their sum differs a little from the
count of the whole text, so the first attempt may be too long. Chosen: bounds the work."""

LINE_CHARS = 240  # Maximum number of characters of a line that several rows share. Chosen.


class Rows(msgspec.Struct, frozen=True):
    """One list. Each row is a single line; the oldest is first.

    - `share`: the part of the budget that is reserved for this list.
    - `unit`: the name of what `left_out` counts. Without it, the list does not say how many rows are left out.
    - `is_users`: the user or the client said these rows. They are written outside the quotation, and the first row is
      taken first.
    - `order`: the indexes of rows in the order in which they are taken. If empty: the newest first.
    - `joint`: if set, several rows share a line, with this text between them.
    """

    title: str
    rows: tuple[str, ...]
    share: float
    unit: str = ""
    left_out: int = 0
    is_users: bool = False
    order: tuple[int, ...] = ()
    joint: str = ""


def write_lists(opening: str, lists: Sequence[Rows], *, max_tokens: int, count: CountTokens) -> str:
    """Write `opening` and the lists below it, together at most `max_tokens`.

    If there is no room for the quotation, only the user's lists are written; if there is no room for any row, only
    `opening`, shortened if it must be.
    """
    room = max_tokens - count(opening)
    frame = count(f"{QUOTE_START}\n{QUOTE_END}\n") if any(one.rows and not one.is_users for one in lists) else 0
    if room <= frame:
        frame, lists = 0, [one for one in lists if one.is_users]
    costs = [_count_rows(one, room, count) for one in lists]
    for number in range(ROUNDS):
        if room <= frame:
            break
        chosen = _choose(lists, costs, room - frame)
        if frame and not any(one.rows and not one.is_users for one in chosen):
            return write_lists(opening, [one for one in lists if one.is_users], max_tokens=max_tokens, count=count)
        quoted = "".join(_write(one, "> ") for one in chosen if not one.is_users)
        text = opening + "".join(_write(one, "- ") for one in chosen if one.is_users)
        text += f"{QUOTE_START}\n{quoted}{QUOTE_END}\n" if quoted else ""
        excess = count(text) - max_tokens
        if excess <= 0:
            return text
        room -= max(excess, room >> (ROUNDS - number))  # ever larger steps, so that few rounds suffice
    return truncate_text(opening, max_tokens, count)


def _write(rows: Rows, prefix: str) -> str:
    """A list below its title. If rows are left out, a line says how many, before the rows or after the user's first."""
    if not rows.rows:
        return ""
    first = 1 if rows.is_users else 0
    left_out = f"({rows.left_out} earlier {rows.unit} omitted)\n" if rows.left_out and rows.unit else ""
    lines = tuple(_join(rows.rows, rows.joint)) if rows.joint else rows.rows
    groups = (_list(lines[:first], prefix), left_out, _list(lines[first:], prefix))
    return f"## {rows.title}\n{''.join(groups)}"


def _join(rows: Iterable[str], joint: str) -> Iterator[str]:
    """The rows joined to lines of at most LINE_CHARS characters, unless one row alone is longer."""
    line = ""
    for row in rows:
        if line and len(line) + len(row) > LINE_CHARS:
            yield line
            line = ""
        line += joint + row if line else row
    if line:
        yield line


def _list(rows: Iterable[str], prefix: str) -> str:
    return break_markers("".join(f"{prefix}{row}\n" for row in rows))


def _choose(lists: Sequence[Rows], costs: Sequence[Sequence[int]], room: int) -> list[Rows]:
    """The lists with rows that cost at most `room`.

    Each list first gets rows for its share. The rest of the room is then filled from the last list to the first.
    """
    taken = [0] * len(lists)
    left = room
    for index, one in enumerate(lists):
        left -= _take(costs[index], taken, index, min(left, int(room * one.share)))
    for index in reversed(range(len(lists))):
        left -= _take(costs[index], taken, index, left)
    return [_keep(one, number) for one, number in zip(lists, taken, strict=True)]


def _count_rows(rows: Rows, room: int, count: CountTokens) -> list[int]:
    """The tokens of rows, in the order in which they are taken; the first includes the title.

    Counting stops after the first row that exceeds `room`.
    """
    title = count(f"## {rows.title}\n") + (
        count(f"({len(rows.rows)} earlier {rows.unit} omitted)\n") if rows.unit else 0
    )
    costs: list[int] = []
    for place in _order(rows):
        row = rows.rows[place]
        costs.append(count(f"{rows.joint}{row}" if rows.joint else f"> {row}\n") + (0 if costs else title))
        room -= costs[-1]
        if room < 0:
            break
    return costs


def _order(rows: Rows) -> Sequence[int]:
    if rows.order:
        return rows.order
    newest_first = range(len(rows.rows) - 1, -1, -1)
    return [0, *newest_first[:-1]] if rows.is_users and rows.rows else newest_first


def _take(costs: Sequence[int], taken: list[int], index: int, budget: int) -> int:
    """Take further rows of a list within `budget`. Updates `taken`; returns the tokens spent."""
    spent = 0
    for cost in costs[taken[index] :]:
        if spent + cost > budget:
            break
        spent += cost
        taken[index] += 1
    return spent


def _keep(rows: Rows, number: int) -> Rows:
    missing = len(rows.rows) - number
    if not missing:
        return rows
    kept = tuple(rows.rows[place] for place in sorted(_order(rows)[:number]))
    return replace(rows, rows=kept, order=(), left_out=rows.left_out + missing)


def frame(text: str) -> str:
    """Return a text as a quotation. The markers in it must be broken already."""
    return f"{QUOTE_START}\n{text.rstrip()}\n{QUOTE_END}\n"


def fit(write: Callable[[int], str], *, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the result of `write` for a room of `max_tokens`, or for less room if that result is too long.

    Empty if no attempt fits `max_tokens`.
    """
    room = max_tokens
    for _ in range(ROUNDS):
        if room <= 0:
            break
        text = write(room)
        excess = count(text) - max_tokens
        if excess <= 0:
            return text
        room -= excess
    return ""
