"""Puts the client's texts back into a forwarded body whose long messages were shortened, or whose results have pins.

Law: JSON in, JSON out; nothing of the rules is used. A text is put back only if its head and its tail are the client's.
"""

import re
from typing import Any

_OMITTED = re.compile(r"\n\[trimtab: omitted \d+ lines \(\d+ tokens\)(?:; ask for this part)?\]\n")
_PIN = re.compile(r"\n\[trimtab: reminder of the user's goal: \"[^\"\n]{1,201}\"(?:; [^\n]{1,200})?\]\Z")


def put_back(original: Any, sent: Any) -> Any:
    """`sent` with each shortened or pinned text replaced by that of `original` in the same place.

    Everything else stays as it was sent, so that it can be compared with the original.
    """
    if isinstance(original, dict) and isinstance(sent, dict):
        return {key: put_back(original.get(key), value) for key, value in sent.items()}
    if isinstance(original, list) and isinstance(sent, list) and len(original) == len(sent):
        return [put_back(*pair) for pair in zip(original, sent, strict=True)]
    if isinstance(original, str) and isinstance(sent, str) and is_from(original, sent):
        return original
    return sent


def is_from(original: str, sent: str) -> bool:
    """Whether a text is the client's with its middle left out, or with a pin at its end."""
    ends = _OMITTED.split(sent)
    if len(ends) == 2:
        return all(ends) and original.startswith(ends[0]) and original.endswith(ends[1])
    return _PIN.sub("", sent) == original


def read_pin(text: str) -> str:
    """The pin at the end of a text; empty if there is none."""
    found = _PIN.search(text)
    return found.group().strip() if found else ""
