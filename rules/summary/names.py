"""Find names in texts, how likely each is to be needed again, and the lines that share rare words with the tail.

Names are paths, URLs, mail and IP addresses, dotted, snake_case and camelCase names, ids, and numbers. Laws: linear in
any text. A name is always whole, so that a reader can use it as it is written. A name ranks higher if the model wrote
it into a call, if the model or the user said it, if it was mentioned late, and if it costs few tokens.

The next answers are likely to need lines of the removed part that share a word with the tail that few lines have. Such
a line counts only if it contains a name or a number. Only the newest READ_CHARS characters of the removed part are
read.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from math import fsum, log, log1p, sqrt
from typing import Any

import msgspec

from trimtab.rules.conversation import CountTokens, Message, Role, ToolCall
from trimtab.rules.results.calls import decode
from trimtab.rules.summary.quoting import quote_line
from trimtab.rules.text.late import compile_late
from trimtab.rules.text.markers import strip_markers

MIN_NAME_CHARS = 5
MAX_NAME_CHARS = 200
"""Shorter names are ordinary words, longer ones are data. Source: the bench's measure of needed identifiers counts
names of 5 to 200 characters (bench/retention/needed/identifiers.py)."""
MAX_RUN_CHARS = 512  # A longer run of characters without a break has no names. Chosen: such a run is data.


class Kind(StrEnum):
    """The form of a name. The values are titles in the index."""

    PATH = "paths"
    URL = "URLs and emails"
    SYMBOL = "symbols"
    NUMBER = "ids and numbers"


_UNSEEN = "\\x00-\\x1f\\x7f-\\x9f\\u00ad\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ud800-\\udfff\\ufeff"
"""Control characters, surrogates and invisible characters: they end a URL."""
_RUN = r"</[\w:-]*+|(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d{2,5})?(?![\w.])|[#)\]}*\w.@~/+$%-][\w.@~/+$%-]{4,}+"
"""One of three: a closing tag, which is not a path; an IP address; a run of characters that may be or contain a name.
The first character of a run shows whether it is only the rest of a longer name."""
_RUNS = compile_late(_RUN)
_RUNS_AND_ADDRESSES = compile_late(
    rf"""[a-z][a-z0-9+.-]{{1,15}}://[^\s"'`<>)\]}}\\{_UNSEEN}]++  # an address, up to what ends it in a text
    |[A-Za-z]:\\[^\s"'`<>)\]|*?:{_UNSEEN}]++   # a path of Windows
    |{_RUN}""",
    re.VERBOSE,
)
_ADDRESS = compile_late(r"(?<![\w.+%-])[\w.+%-]++@[\w-]++(?:\.[\w-]++)+(?![\w@])")
_LETTER = r"A-Za-z0-9_\u00aa-\u1fff"
"""Letters of scripts with spaces between words. In other scripts the sentence may continue directly after a name."""
_WORD = compile_late(
    rf"""(?<![{_LETTER}-])[{_LETTER}-]++(?:\.[{_LETTER}-]++)+      # dotted
    |(?<![{_LETTER}-])\#?(?=[A-Za-z_-]{{0,64}}\d)[A-Za-z0-9_-]{{5,}}+(?![{_LETTER}])  # an id
    |(?<![A-Za-z0-9_])_*+[A-Za-z][A-Za-z0-9]*+(?:_++[A-Za-z0-9]++)+_*  # snake
    |(?<![A-Za-z0-9_])[a-z]++[A-Z]\w*+                         # camel
    |(?<![A-Za-z0-9_])(?:[A-Z]++[a-z]++){{2,}}\w*+               # the same with a capital in front""",
    re.VERBOSE,
)
_MACHINE = compile_late(r"\d{1,3}(?:\.\d{1,3}){3}(?::\d{2,5})?")
_NUMBERING = compile_late(r"(?=\d++\.)(?:\d++\.|)*+")
_ID_PART = compile_late(r"(?<![^.])(?=[A-Za-z-]{0,64}\d)[A-Za-z0-9-]{5,}+(?![^.])")
_EDGES = ".,:;-"
_PATH_EDGES = ",:;-"
_CLOSING = ")]}*"
"""If one of these precedes a slash, the path begins before it, as in `*/tests` or `{root}/a.py`. It is kept, because
the rest alone would be another path."""
_NO_LABELS = compile_late(
    r"""(?:a|about|after|all|an|and|are|as|at|be|been|before|but|by|for|from|had|has|have|her?|his|how|if?|in|into|is|its?
    |just|last|more|most|my|near|no|not|of|on|one|only|or|other|our|out|over|per|she|so|some|than|that|the|them|then|there
    |these|they|this|those|to|under|until|up|was|we|were|what|when|where|which|who|will|with|you|your)""",
    re.VERBOSE | re.IGNORECASE,
)
"""Words that may precede any number, and so are not labels."""
_OWNER = compile_late(r"(?<![\w/.@-])[A-Za-z]{2,20}(?:-[A-Za-z]{1,20}){1,3}(?![\w@/-]|\.\w)")
"""A name without digits of several words, as in `billing-db`. One of a single word cannot be told from other words, and
one with `_` may be the key of another number."""
OWNER_CHARS = 48  # Maximum number of characters between a number and the name that owns it. Chosen: about eight words.
_LABELLED = compile_late(
    r"""(?<![\w/.-])([A-Za-z][A-Za-z_-]{1,23}+)["'`*]{0,2}[ \t]{0,2}(?:[:=\#]|is|was|no\.)?[ \t]{0,2}["'`*\#]{0,2}
    (?=[A-Za-z-]{0,40}\d)([A-Za-z0-9-]{5,64}+)(?![\w/-]|\.\w)""",
    re.VERBOSE,
)


def find_names(text: str) -> frozenset[str]:
    found: set[str] = set()
    # Most texts have no URL, and the simpler pattern takes two thirds of the time.
    runs = _RUNS_AND_ADDRESSES if "://" in text or ":\\" in text else _RUNS
    for run in set(runs.findall(text)):
        # Most runs are plain words, which are not names: skip them before the slower checks.
        word = run.rstrip(".")
        is_plain = word.isalpha() and (word[1:].islower() or word.isupper())
        if not is_plain and len(run) <= MAX_RUN_CHARS:
            found.update(_read_run(run))
    return frozenset(found)


def find_labels(text: str) -> dict[str, str]:
    """Map each id, number and mail address in a text to what it is of and what it is, as in `billing-db port`.

    What it is of is the nearest name in the same sentence; what it is, the word before it. Each may be missing. The
    last occurrence counts.
    """
    labels = {number: label for label, number in _LABELLED.findall(text) if not _NO_LABELS.fullmatch(label)}
    found = {number: label for number, label in labels.items() if len(number) >= MIN_NAME_CHARS}
    for sentence in _SENTENCE_END.split(text) if "-" in text else ():
        owners = list(_OWNER.finditer(sentence)) if len(sentence) <= LINE_CHARS else []
        for number in find_names(sentence) if owners else ():
            if "@" not in number and find_kind(number) is not Kind.NUMBER:
                continue  # it shows what it is of
            label, owner = labels.get(number, ""), _find_nearest(owners, sentence, number)
            if owner and owner != label:
                found[number] = f"{owner} {label}".rstrip()
    return found


def _find_nearest(owners: Sequence[re.Match[str]], sentence: str, number: str) -> str:
    """The nearest owner before a number, else after it, with no other number between; empty if none is near."""
    start = sentence.find(number)
    stop = start + len(number)
    near: list[tuple[bool, int, str]] = []
    for owner in owners:
        follows = owner.start() >= stop
        between = sentence[stop : owner.start()] if follows else sentence[owner.end() : start]
        is_apart = follows or owner.end() <= start
        if is_apart and len(between) <= OWNER_CHARS and not any(map(str.isdigit, between)):
            near.append((follows, len(between), owner[0]))
    return min(near, default=(False, 0, ""))[2]


def find_kind(name: str) -> Kind:
    if "://" in name or "@" in name:
        return Kind.URL
    if "/" in name or "\\" in name:
        return Kind.PATH
    is_id = name.removeprefix("#").replace("-", "").isalnum() and any(char.isdigit() for char in name)
    is_camel = not name.islower() and not name.isupper() and name[0].isalpha() and "-" not in name
    return Kind.NUMBER if is_id and not is_camel else Kind.SYMBOL


def _read_run(run: str) -> list[str]:
    if run[0] == "<":
        return []
    if _MACHINE.fullmatch(run):
        return [run]
    if run[0] in _CLOSING and run[1] != "/":
        run = run[1:]
    if "://" in run or "\\" in run:
        names = [run]
    elif "/" in run:
        names = [] if run.startswith("//") else [run.lstrip("+").rstrip("/")]
    elif "@" in run:
        names = _ADDRESS.findall(run) or [name for part in run.split("@") for name in _find_words(part)]
    else:
        names = _find_words(run)
    # The leading dot of a path is kept: `./a/b` without its dot is another path.
    edges = _PATH_EDGES if "/" in run else _EDGES
    stripped = [name.rstrip(_EDGES).lstrip(edges) for name in names]
    return [name for name in stripped if MIN_NAME_CHARS <= len(name) <= MAX_NAME_CHARS]


def _find_words(run: str) -> list[str]:
    """The names in a run without slashes. Versions and decimal numbers are not names."""
    names = _WORD.findall(run)
    if "." in run and any(name[0].isdigit() for name in names):
        names = [name for found in names for name in _read_number(found)]
    return names


def _read_number(name: str) -> list[str]:
    if not name[0].isdigit() or "." not in name or _ID_PART.search(name):
        return [name]
    rest = _NUMBERING.sub("", name, count=1)  # the number of a list's item: `1.first_step`
    if rest == name:  # the first part is not only digits, as in `0001_initial.py`
        return [] if name.rpartition(".")[2][:1].isdigit() else [name]
    return [] if rest[:1].isdigit() else [found for found in _WORD.findall(rest) if found == rest]


MAX_DEPTH = 16  # Arguments that are nested deeper are not read. Chosen: bounds the recursion.

# Source of the weights below: a logistic regression over 206,197 names before 228 cuts of the recorded sessions, at a
# window of 32k. It predicts whether an answer before the next cut needs a name that is in no message of the tail. The
# weights do as well at 16k, 64k and 128k. If any one of them except RECENCY is doubled or left out, the recall changes
# by less than 1.5 points.
RECENCY = -0.65  # Weight of log(1 + number of messages since the name was last mentioned)
ASKED = 1.1  # Added if the name is in the arguments of a call
ASKED_OFTEN = 0.6  # Weight of log(1 + number of messages with calls that contain the name)
SAID = 0.7  # Weight of log(1 + number of messages that say the name), separately for the assistant and the user
TOLD_OFTEN = -0.3
"""Weight of log(1 + number of tool results that contain the name): a name that is everywhere is not specific."""
DATA = -1.0
"""Added if only tools have told the name and it is a path, an address or a number. Chosen: most of these are data, such
as counters and times. They had a quarter of the room for names, and one in ninety of those that were needed."""

_ID = compile_late(r"#?(?=[A-Za-z_-]{0,64}\d)[A-Za-z0-9_-]{5,64}")
"""An argument that is only an id or a number. Its key is used as its label."""


class Mentions(msgspec.Struct, frozen=True):
    """The names in one message: `asked` in calls, `told` in its text. `labels`: what ids and numbers are, in a word."""

    role: Role
    asked: AbstractSet[str]
    told: AbstractSet[str]
    labels: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        names = 300 + sum(110 + len(name) for names in (self.asked, self.told) for name in names)
        return names + sum(200 + len(number) + len(label) for number, label in self.labels.items())


def read_mentions(message: Message) -> Mentions:
    """Find the names in a message. Text in trimtab's own markers does not count."""
    text = strip_markers(message.text)
    members = list(_read_members(message.tool_calls))
    labels = {} if message.role is Role.TOOL else find_labels(text)
    labels |= {value: key for key, value in members if key and _ID.fullmatch(value)}
    asked = "\n".join(value for _, value in members)
    return Mentions(message.role, find_names(asked), find_names(text), labels)


def read_arguments(calls: Iterable[ToolCall]) -> Iterator[str]:
    """The strings and numbers in the arguments of calls. If arguments are not JSON, their whole text."""
    return (value for _, value in _read_members(calls))


def _read_members(calls: Iterable[ToolCall]) -> Iterator[tuple[str, str]]:
    """(key, value) of each string and number in arguments; no key for items of lists, and for what is no JSON."""
    for call in calls:
        value = decode(call.arguments)
        yield from [("", call.arguments)] if value is None else _walk("", value, MAX_DEPTH)


def _walk(key: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield key, str(value)
    elif depth > 0 and isinstance(value, dict):
        for name, item in value.items():
            yield from _walk(name, item, depth - 1)
    elif depth > 0 and isinstance(value, list):
        for item in value:
            yield from _walk("", item, depth - 1)


def rank_names(mentions: Sequence[Mentions], *, without: AbstractSet[str], most: int, count: CountTokens) -> list[str]:
    """At most `most` names that may be needed again, except those in `without`.

    First is the name that is the most likely for each of its tokens; equal ones are in alphabetical order. Tokens are
    counted only of the `most` names that are first for each of their characters.
    """
    last: dict[str, int] = {}
    asked: Counter[str] = Counter()
    told: dict[Role, Counter[str]] = {role: Counter() for role in Role}
    for index, message in enumerate(mentions):
        if message.role is not Role.SYSTEM:
            last.update(dict.fromkeys(message.asked, index))
            last.update(dict.fromkeys(message.told, index))
            asked.update(message.asked)
            told[message.role].update(message.told)
    by_assistant, by_user, by_tools = told[Role.ASSISTANT], told[Role.USER], told[Role.TOOL]
    logs = [log1p(number) for number in range(max(len(mentions), MAX_NAME_CHARS) + 1)]
    scores: dict[str, float] = {}
    for name, index in last.items():
        if name in without:
            continue
        score = RECENCY * logs[len(mentions) - index]
        if name in asked:
            score += ASKED + ASKED_OFTEN * logs[asked[name]]
        said = logs[by_assistant.get(name, 0)] + logs[by_user.get(name, 0)]
        if not said and name not in asked and find_kind(name) is not Kind.SYMBOL:
            score += DATA
        scores[name] = score + SAID * said + TOLD_OFTEN * logs[by_tools.get(name, 0)]
    likely = sorted(scores, key=lambda name: (logs[len(name)] - scores[name], name))[:most]
    costs = {name: log(max(count(f" {name}"), 1)) for name in likely}
    return sorted(likely, key=lambda name: (costs[name] - scores[name], name))


READ_CHARS = 1_000_000  # The newest characters of the removed part that are read. Chosen: bounds the work.
MIN_LINE_CHARS = 8
LINE_CHARS = 400
"""Shortest and longest line that counts; the end of a sentence ends a line, too. Chosen: longer lines are data, and
share some word with any text."""
SHOWN_CHARS = 160  # Maximum number of characters shown of a line. Chosen.
MOST_TOLD = 256  # Maximum number of lines returned, the best ones. Chosen: more than the index has room for.
MOST_LINES = 6  # A word in more different lines does not count. Chosen: it distinguishes none of them.

_LONG_WORD = compile_late(r"[^\W\d_][\w-]{3,63}+")
_SENTENCE_END = compile_late(r"(?<=[.!?;])\s+|(?<=[。！？；])|\n")
_GUTTER = compile_late(r"\s{0,8}(?:[\w./-]{1,200}[:-])?\d{1,6}(?:\t|[:|-]\s?|\s\s)")
"""A file name or line number that a tool prints before a line of a file. It is not part of the line."""
_NUMBER = compile_late(r"\d{2,}")
_CODE = compile_late(r"[{}<>;=|\\]|\(\)|^[^\w\"'(*`-]|^[-dl][r-][w-][x-]")
_SPEAKERS = {Role.USER: "the user said", Role.ASSISTANT: "the assistant said", Role.TOOL: "a tool returned"}
FEWEST_WORDS = 4  # Of a line of prose. In scripts without spaces each letter counts as a word. Chosen.


def find_echoes(removed: Sequence[Message], tail: Sequence[Message], present: AbstractSet[str]) -> tuple[str, ...]:
    """Find lines of `removed` that share words with `tail`. Each result begins with who said the line.

    A line scores higher the more and the rarer words it shares, and the shorter it is. The best is first; of equal ones
    the newest is first. A line needs a name that is not `present` (known to the reader already), or a number.
    """
    said = [message for message in tail if message.role is not Role.TOOL]
    texts = (text for message in said for text in (*message.texts, *read_arguments(message.tool_calls)))
    wanted = _find_long_words("\n".join(texts))
    shared: dict[str, frozenset[str]] = {}
    speakers: dict[str, Role] = {}  # who said a line last, in the order of that
    times: Counter[str] = Counter()
    for line, role in _find_lines(removed):
        if line not in shared:
            shared[line] = wanted & _find_long_words(line)
            times.update(shared[line])
        speakers.pop(line, None)
        speakers[line] = role
    scores = {
        line: score
        for line in reversed(speakers)
        if (score := _score(line, shared[line], times))
        and _is_prose(line)
        and (find_names(line) - present or _NUMBER.search(line))
    }
    told = sorted(scores, key=scores.__getitem__, reverse=True)
    return tuple(f"{_SPEAKERS[speakers[line]]}: {quote_line(line, SHOWN_CHARS)}" for line in told[:MOST_TOLD])


def _is_prose(line: str) -> bool:
    """Whether a line is prose, and not a line of a program, a listing or a table."""
    letters = sum(map(str.isalpha, line))
    words = sum(word.isalpha() for word in re.split(r"[\s,.:!?]+", line))
    wide = sum(char > "\u2e7f" for char in line)
    return max(words, wide) >= FEWEST_WORDS and letters >= len(line) / 2 and _CODE.search(line) is None


def _score(line: str, words: AbstractSet[str], times: Mapping[str, int]) -> float:
    # A word with digits or several parts is rarer than a word of the language, and counts twice. Chosen.
    # fsum is exact: the iteration order of a set varies between processes, but every replica must get the same sum.
    shared = fsum((1.0 if word.isalpha() else 2.0) / times[word] for word in words if times[word] <= MOST_LINES)
    return shared / sqrt(len(line))


def _find_long_words(text: str) -> frozenset[str]:
    return frozenset(_LONG_WORD.findall(text.lower()))


def _find_lines(messages: Sequence[Message]) -> Iterator[tuple[str, Role]]:
    """The lines and sentences of the newest messages, oldest first, with who said them."""
    left, start = READ_CHARS, len(messages)
    while start and left > 0:
        start -= 1
        left -= sum(map(len, messages[start].texts))
    for message in messages[start:]:
        if message.role not in _SPEAKERS:
            continue
        for line in _SENTENCE_END.split(strip_markers(message.text[-READ_CHARS:])):
            gutter = _GUTTER.match(line) if message.role is Role.TOOL else None
            stripped = line[gutter.end() if gutter else 0 :].strip()
            if MIN_LINE_CHARS <= len(stripped) <= LINE_CHARS:
                yield stripped, message.role
