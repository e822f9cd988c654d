"""Names in a text: paths, addresses, dotted, snake and camel names, ids, and numbers of five signs and more.

Law: linear in the text, whatever it is. A name is a whole one: what is copied can be used as it stands.
"""

import re
from enum import StrEnum

MIN_NAME_CHARS = 5
MAX_NAME_CHARS = 200
"""Shorter ones are words of any text, longer ones are data. Source: the measure of needed identifiers, which counts
names of 5 to 200 characters (bench/README.md)."""
MAX_RUN_CHARS = 512
"""Signs in a row that may hold a name; more of them are data, too."""


class Kind(StrEnum):
    """What a name looks like."""

    PATH = "paths"
    URL = "addresses"
    SYMBOL = "symbols"
    NUMBER = "ids and numbers"


_RUN = re.compile(
    r"""https?://[^\s"'`<>)\]}\\]{1,400}+           # an address, up to what ends it in a text
    |[A-Za-z]:\\[^\s"'`<>|*?:]{3,200}+              # a path of Windows
    |\#?[\w.@~/-]++                                # what any other name consists of""",
    re.VERBOSE,
)
_ADDRESS = re.compile(r"[\w.-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+")
_WORD = re.compile(
    r"""[A-Za-z_]\w*+(?:\.\w++)+                               # dotted
    |(?<![A-Za-z0-9_])_*[A-Za-z][A-Za-z0-9]*+(?:_++[A-Za-z0-9]++)+_*  # snake
    |(?<![A-Za-z0-9_])\#?(?=[A-Za-z-]{0,64}\d)[A-Za-z0-9-]{5,}+(?![A-Za-z0-9_])  # an id
    |(?<![A-Za-z0-9_])[a-z]++[A-Z]\w*+                         # camel
    |(?<![A-Za-z0-9_])(?:[A-Z]++[a-z]++){2,}\w*+               # the same with a capital in front""",
    re.VERBOSE,
)
_EDGES = ".,:;-"
_LABELLED = re.compile(
    r"""(?<![\w/.-])([A-Za-z][A-Za-z_-]{1,23}+)["'`*]{0,2}[ \t]{0,2}(?:[:=\#]|is|was|no\.)?[ \t]{0,2}["'`*\#]{0,2}
    (?=[A-Za-z-]{0,40}\d)([A-Za-z0-9-]{5,64}+)(?![\w./-])""",
    re.VERBOSE,
)


def find_names(text: str) -> frozenset[str]:
    """The names in a text."""
    found: set[str] = set()
    for run in set(_RUN.findall(text)):
        # Words of prose are most of any text, and no names.
        if MIN_NAME_CHARS <= len(run) <= MAX_RUN_CHARS and not (run.isalpha() and _is_plain(run)):
            found.update(_read_run(run))
    return frozenset(found)


def _is_plain(word: str) -> bool:
    return word.islower() or word[1:].islower() or word.isupper()


def find_labels(text: str) -> dict[str, str]:
    """The ids and numbers in a text that a word stands before, and that word; the last one counts."""
    return {number: label for label, number in _LABELLED.findall(text) if len(number) >= MIN_NAME_CHARS}


def find_kind(name: str) -> Kind:
    """What a name looks like."""
    if "://" in name or "@" in name:
        return Kind.URL
    if "/" in name or "\\" in name:
        return Kind.PATH
    has_letters_only_as_digits = name.replace("-", "").isalnum() and any(char.isdigit() for char in name)
    return Kind.NUMBER if has_letters_only_as_digits and not _is_camel(name) else Kind.SYMBOL


def _is_camel(name: str) -> bool:
    return not name.islower() and not name.isupper() and name[0].isalpha() and "-" not in name


def _read_run(run: str) -> list[str]:
    if "://" in run or "\\" in run:
        names = [run]
    elif "/" in run:
        names = [] if run.startswith("//") else [run.rstrip("/")]
    elif "@" in run:
        names = _ADDRESS.findall(run) or [name for part in run.split("@") for name in _WORD.findall(part)]
    else:
        names = _WORD.findall(run)
    stripped = (name.strip(_EDGES) for name in names)
    return [name for name in stripped if MIN_NAME_CHARS <= len(name) <= MAX_NAME_CHARS]
