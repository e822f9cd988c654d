"""Checks the claims of truncation markers against the text that was truncated.

Law: it knows the forms of the markers from docs/reference/markers.md, not the code that writes them.
"""

import re
from typing import Any

import orjson

from trimtab.rules.conversation import CountTokens
from trimtab.rules.text.head_tail import measure_bytes

_GAP = re.compile(
    r"\[trimtab: omitted (?:(?P<total>\d+) lines?|(?P<chars>\d+) characters of (?:a line|line (?P<of>\d+))"
    r"|lines? (?P<named>\d+(?:-\d+)?))"
    r" \(~(?P<tokens>\d+) tokens\)(?:; call the tool again for (?:these lines|this part))?\]\n"
)
_MIDDLE = re.compile(
    r"\n\[trimtab: omitted (\d+) lines \((\d+) (tokens|bytes)\)(?:; call the tool again for this part)?\]\n"
)
_ITEMS = re.compile(r"(?:\[trimtab: omitted )?(\d+) of (\d+) (?:items|members omitted)\b.*")


def check_markers(short: str, text: str, count: CountTokens) -> int:
    """Count the markers in `short`, the truncated form of `text`. Fails if one of them is not true."""
    if short == text:
        return 0
    if (document := _read_json(short)) is not None:
        return _check_items(document, orjson.loads(text))
    if middle := _MIDDLE.search(short):
        _check_middle(short, middle, text, count)
        return 1
    if _GAP.search(short):
        return _check_gaps(short, text, count)
    assert text.startswith(short)
    return 0


def _read_json(short: str) -> Any:
    try:
        return orjson.loads(short) if short[:1] in {"[", "{"} else None
    except orjson.JSONDecodeError:
        return None


def _check_items(short: Any, whole: Any) -> int:
    """Shown and omitted parts together are all parts. Both values are walked in parallel as far as they match."""
    if isinstance(short, dict) and isinstance(whole, dict):
        markers = [value for key, value in short.items() if key.startswith("[trimtab")]
        shown = {key: value for key, value in short.items() if key in whole}
        inner = sum(_check_items(value, whole[key]) for key, value in shown.items())
    elif isinstance(short, list) and isinstance(whole, list):
        markers = [item for item in short if isinstance(item, str) and _ITEMS.fullmatch(item.rstrip("]"))]
        shown, inner = short[len(markers) :], 0
    else:
        return 0
    for marker in markers:
        found = _ITEMS.fullmatch(marker.rstrip("]"))
        assert (int(found[1]), int(found[2])) == (len(whole) - len(shown), len(whole))
    return len(markers) + inner


def _check_middle(short: str, marker: "re.Match[str]", text: str, count: CountTokens) -> None:
    """Check head and tail, and the number of lines and tokens or bytes that are missing between them."""
    head, tail = short[: marker.start()], short[marker.end() :]
    assert text.startswith(head)
    assert text.endswith(tail)
    missing = text[len(head) : len(text) - len(tail)]
    assert int(marker[1]) == len(missing.removeprefix("\n" if head else "").removesuffix("\n").split("\n"))
    measure = measure_bytes if marker[3] == "bytes" else count
    assert int(marker[2]) == measure(text) - measure(head) - measure(tail)


def _check_gaps(short: str, text: str, count: CountTokens) -> int:
    """Each marker is where the kept text before it ends, and the text after it follows the gap that it names."""
    markers = list(_GAP.finditer(short))
    at = _skip(text, 0, short[: markers[0].start()])
    for marker, following in zip(markers, [*markers[1:], None], strict=True):
        behind = short[marker.end() : following.start() if following else len(short)]
        stop = _find_end(text, at, marker, behind)
        tokens = int(marker["tokens"])
        assert abs(tokens - (stop - at) * count(text) / len(text)) <= 1
        at = _skip(text, stop, behind)
    assert at == len(text)
    return len(markers)


def _skip(text: str, at: int, kept: str) -> int:
    """The end of the kept text that begins at `at`. A line break may have been added before a marker."""
    if text.startswith(kept, at):
        return at + len(kept)
    assert kept.endswith("\n")
    assert text.startswith(kept[:-1], at)
    return at + len(kept) - 1


def _find_end(text: str, at: int, marker: "re.Match[str]", behind: str) -> int:
    """The end of the gap that begins at `at`, as its marker says."""
    first = text.count("\n", 0, at) + 1
    if marker["chars"]:
        assert marker["of"] in {None, str(first)}
        return at + int(marker["chars"])
    named = (marker["named"] or "").partition("-")
    lines = int(marker["total"]) if marker["total"] else int(named[2] or named[0]) - int(named[0]) + 1
    if named[0]:
        shown = re.match(r"\s*(\d+)", text[text.rfind("\n", 0, at) + 1 :])
        assert int(named[0]) == first or (shown and named[0] == shown[1])
        assert int(named[2] or named[0]) == int(named[0]) + lines - 1
    stop = at
    for _ in range(lines - 1):
        stop = text.index("\n", stop) + 1
    end = text.find("\n", stop) + 1 or len(text)
    behind = behind.removesuffix("\n")
    if text.startswith(behind, end):
        return end
    # `behind` is the end of the last line. The same text may also occur earlier in that line, so search from the right.
    return text.rindex(behind, max(stop, at), end + len(behind) - 1)
