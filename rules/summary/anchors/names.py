"""Find names in a text: paths, URLs, mail and IP addresses, dotted, snake_case and camelCase names, ids, and numbers.

Law: linear in any text. A name is always whole, so that a reader can use it as it is written.
"""

import re
from enum import StrEnum

MIN_NAME_CHARS = 5
MAX_NAME_CHARS = 200
"""Shorter names are ordinary words, longer ones are data. Source: the bench's measure of needed identifiers counts
names of 5 to 200 characters (bench/retention/needed/identifiers.py)."""
MAX_RUN_CHARS = 512
"""A longer run of characters without a break has no names. Chosen: such a run is data."""


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
_RUNS = re.compile(_RUN)
_RUNS_AND_ADDRESSES = re.compile(
    rf"""[a-z][a-z0-9+.-]{{1,15}}://[^\s"'`<>)\]}}\\{_UNSEEN}]++  # an address, up to what ends it in a text
    |[A-Za-z]:\\[^\s"'`<>)\]|*?:{_UNSEEN}]++   # a path of Windows
    |{_RUN}""",
    re.VERBOSE,
)
_ADDRESS = re.compile(r"(?<![\w.+%-])[\w.+%-]++@[\w-]++(?:\.[\w-]++)+(?![\w@])")
_LETTER = r"A-Za-z0-9_\u00aa-\u1fff"
"""Letters of scripts with spaces between words. In other scripts the sentence may continue directly after a name."""
_WORD = re.compile(
    rf"""(?<![{_LETTER}-])[{_LETTER}-]++(?:\.[{_LETTER}-]++)+      # dotted
    |(?<![{_LETTER}-])\#?(?=[A-Za-z_-]{{0,64}}\d)[A-Za-z0-9_-]{{5,}}+(?![{_LETTER}])  # an id
    |(?<![A-Za-z0-9_])_*+[A-Za-z][A-Za-z0-9]*+(?:_++[A-Za-z0-9]++)+_*  # snake
    |(?<![A-Za-z0-9_])[a-z]++[A-Z]\w*+                         # camel
    |(?<![A-Za-z0-9_])(?:[A-Z]++[a-z]++){{2,}}\w*+               # the same with a capital in front""",
    re.VERBOSE,
)
_MACHINE = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}(?::\d{2,5})?")
_NUMBERING = re.compile(r"(?:\d++\.)++")
_ID_PART = re.compile(r"(?<![^.])(?=[A-Za-z-]{0,64}\d)[A-Za-z0-9-]{5,}+(?![^.])")
_EDGES = ".,:;-"
_PATH_EDGES = ",:;-"
_CLOSING = ")]}*"
"""If one of these precedes a slash, the path begins before it, as in `*/tests` or `{root}/a.py`. It is kept, because
the rest alone would be another path."""
_NO_LABELS = re.compile(
    r"""(?:a|about|after|all|an|and|are|as|at|be|been|before|but|by|for|from|had|has|have|her?|his|how|if?|in|into|is|its?
    |just|last|more|most|my|near|no|not|of|on|one|only|or|other|our|out|over|per|she|so|some|than|that|the|them|then|there
    |these|they|this|those|to|under|until|up|was|we|were|what|when|where|which|who|will|with|you|your)""",
    re.VERBOSE | re.IGNORECASE,
)
"""Words that may precede any number, and so are not labels."""
_LABELLED = re.compile(
    r"""(?<![\w/.-])([A-Za-z][A-Za-z_-]{1,23}+)["'`*]{0,2}[ \t]{0,2}(?:[:=\#]|is|was|no\.)?[ \t]{0,2}["'`*\#]{0,2}
    (?=[A-Za-z-]{0,40}\d)([A-Za-z0-9-]{5,64}+)(?![\w/-]|\.\w)""",
    re.VERBOSE,
)


def find_names(text: str) -> frozenset[str]:
    """Find the names in a text."""
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
    """Map each id and number in a text to the word before it, if there is one. The last occurrence counts."""
    labels = ((label, number) for label, number in _LABELLED.findall(text) if not _NO_LABELS.fullmatch(label))
    return {number: label for label, number in labels if len(number) >= MIN_NAME_CHARS}


def find_kind(name: str) -> Kind:
    """Return the form of a name."""
    if "://" in name or "@" in name:
        return Kind.URL
    if "/" in name or "\\" in name:
        return Kind.PATH
    is_id = name.removeprefix("#").replace("-", "").isalnum() and any(char.isdigit() for char in name)
    return Kind.NUMBER if is_id and not _is_camel(name) else Kind.SYMBOL


def _is_camel(name: str) -> bool:
    return not name.islower() and not name.isupper() and name[0].isalpha() and "-" not in name


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
