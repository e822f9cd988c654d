"""Hides credentials in what is kept of a request: whole ones, and pieces of one that was cut.

Law: runs in a thread, only for a request that is recorded or whose text is kept.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

import orjson

from proxy.account.recordings.format import HIDDEN
from proxy.exchange.telling.hidden import PIECE_CHARS, WORDY_CHARS, Hidden, Secret

NAME_BYTES = 48
"""Bytes before a word in which the name of a key is looked for. Chosen: the longest name, and what may follow
it in JSON within JSON."""
ESCAPE_BYTES = 24
"""The longest escape of a character. Chosen: a pair of surrogates, six backslashes each."""
STEP_BYTES = 64
"""Bytes that are compared at once. Chosen: as the distance of the pieces of a credential that are sought."""
LOOK_BYTES = 32
"""Distance of the places of a text that are looked at for a long credential. Chosen: it takes 3 ns a byte."""
_BACKSLASH = ord("\\")
_MAY_BE_ESCAPED = b'"\\/'
_BACKSLASHES = re.compile(rb"\\+")
_RUN = rb"\\(?<!\\\\)\\*"
"""All backslashes of several. A search that could begin at each of them would take quadratic time; one that begins with
what must stand before them would look at each byte."""
_ASCII_ESCAPE = re.compile(_RUN + rb"(?:u(00[0-7][0-9a-fA-F])|/)")
"""An escape of JSON for a character that a key may have, at any depth: JSON may be a string in other JSON."""
_ANY_ESCAPE = re.compile(
    _RUN + rb"(?:u([dD][89abAB][0-9a-fA-F]{2})\\+u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|/)"
)
_NAMED = re.compile(
    rb"(?:bearer|basic|authorization|credentials?|key|token|secret|password|passwd|pwd)(?:\W{1,16}(?:is|was))?\W{1,16}\Z",
    re.IGNORECASE,
)
"""What stands before a key that is named as such: `Bearer test`, `"api_key": "test"`, `the password is test`."""
_ALONE = re.compile(rb"(?:^|[^A-Za-z0-9]|\\[bfnrt]|\\u[0-9a-fA-F]{4})\Z")
"""What stands before a word: no letter or digit, unless it is one of an escape."""
_BEHIND = rb"(?![A-Za-z0-9])"

Span = tuple[int, int]


def redact(text: bytes, hidden: Hidden) -> bytes:
    """The text with `***` for each credential, also if it is written with the escapes of JSON."""
    for secret in hidden.secrets:
        # The longest first: a part of an escape that stayed would make the JSON invalid.
        for form in secret.forms:
            if form in text:
                text = _hide(text, re.compile(re.escape(form)), secret)
    bare = _remove_escapes(text, hidden)
    if bare is text:
        return _hide_spans(text, _find_pieces(bare, hidden))
    spans = [*_find_whole(bare, hidden), *_find_pieces(bare, hidden)]
    return _hide_spans(text, _Escapes(text, hidden).find_places(spans)) if spans else text


def redact_text(text: str, hidden: Hidden) -> str:
    """The text with `***` for each credential. Lone surrogates become `?`."""
    return redact(text.encode("utf-8", "replace"), hidden).decode("utf-8", "replace")


def redact_body(body: bytes, hidden: Hidden) -> bytes:
    """The body with `***` for each credential. JSON stays JSON, if need be in other bytes."""
    told = redact(body, hidden)
    if told == body or _is_json(told):
        return told
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return told
    return orjson.dumps(redact_value(value, hidden))


def redact_value(value: Any, hidden: Hidden, *, with_numbers: bool = True) -> Any:
    """A value of JSON with `***` for each credential in a text or a name.

    with_numbers: a number that holds a credential becomes a text. Otherwise numbers stay.
    """
    if isinstance(value, dict):
        return {
            redact_text(name, hidden): redact_value(part, hidden, with_numbers=with_numbers)
            for name, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact_value(part, hidden, with_numbers=with_numbers) for part in value]
    if isinstance(value, str):
        return redact_text(value, hidden)
    if not with_numbers or isinstance(value, bool) or value is None:
        return value
    told = redact_text(str(value), hidden)
    return value if told == str(value) else told


def _hide(text: bytes, form: re.Pattern[bytes], secret: Secret) -> bytes:
    if not secret.is_bounded:
        return form.sub(HIDDEN, text)
    bounded = re.compile(form.pattern + _BEHIND)
    return bounded.sub(partial(_hide_alone, is_word=secret.is_word), text)


def _hide_alone(found: re.Match[bytes], *, is_word: bool) -> bytes:
    text, start = found.string, found.start()
    before = _NAMED if is_word else _ALONE
    return HIDDEN if before.search(text, max(start - NAME_BYTES, 0), start) else found[0]


def _remove_escapes(text: bytes, hidden: Hidden) -> bytes:
    """The text without escapes; the text itself if it has none that a credential might have."""
    first = b"\\u" if hidden.is_wide else b"\\u00"
    if first not in text and not (hidden.has_slash and b"\\/" in text):
        return text
    return _ANY_ESCAPE.sub(_read_escape, text) if hidden.is_wide else _ASCII_ESCAPE.sub(_read_ascii, text)


def _read_ascii(found: re.Match[bytes]) -> bytes:
    return b"/" if found[1] is None else bytes((int(found[1], 16),))


def _read_escape(found: re.Match[bytes]) -> bytes:
    high, low, one = found.groups()
    if high is not None:
        return (bytes.fromhex(high.decode()) + bytes.fromhex(low.decode())).decode("utf-16-be").encode()
    return b"/" if one is None else chr(int(one, 16)).encode("utf-8", "replace")


class _Escapes:
    """Where the escapes are that a text has and its bare form does not."""

    def __init__(self, text: bytes, hidden: Hidden) -> None:
        self._starts, self._places = [0], [(0, 0, 0)]  # in the bare form; and the escape's start, its stop, its length
        pattern, read = (_ANY_ESCAPE, _read_escape) if hidden.is_wide else (_ASCII_ESCAPE, _read_ascii)
        behind = 0
        for found in pattern.finditer(text):
            start, stop = found.span()
            before_start, (_, before_stop, before_length) = self._starts[-1], self._places[-1]
            behind = before_start + before_length + start - before_stop
            self._starts.append(behind)
            self._places.append((start, stop, len(read(found))))

    def find_places(self, spans: Iterable[Span]) -> Iterator[Span]:
        """The spans in the text for those in its bare form."""
        for start, stop in spans:
            yield self._find(start)[0], self._find(stop - 1)[1]

    def _find(self, at: int) -> Span:
        """The span in the text of a byte of the bare form."""
        number = bisect_right(self._starts, at) - 1
        start, stop, length = self._places[number]
        further = at - self._starts[number] - length
        return (start, stop) if further < 0 else (stop + further, stop + further + 1)


def _find_whole(bare: bytes, hidden: Hidden) -> Iterator[Span]:
    """The spans of whole credentials in a text without its escapes."""
    for secret in hidden.secrets:
        for form in secret.forms:
            if form not in bare:
                continue
            for found in re.finditer(re.escape(form), bare):
                if not secret.is_bounded or (
                    _is_behind(bare, found.end()) and _hide_alone(found, is_word=secret.is_word) == HIDDEN
                ):
                    yield found.span()


def _is_behind(text: bytes, at: int) -> bool:
    return re.compile(_BEHIND).match(text, at) is not None


def _find_pieces(bare: bytes, hidden: Hidden) -> Iterator[Span]:
    """The spans of pieces of credentials in a text without its escapes, each as long as it is.

    The time is linear: what lies within a piece that was found is not compared again.
    """
    for secret in hidden.secrets:
        seeds = {seed.form: seed for seed in reversed(secret.seeds) if seed.form in bare}
        found = _look_for(secret.grams, bare) if secret.grams else []
        if not seeds and not found:
            continue
        whole = secret.text.encode("utf-8", "replace")
        found += (
            (one.start(), len(whole) - len(secret.text[seed.start :].encode("utf-8", "replace")), len(form), 0)
            for form, seed in seeds.items()
            for one in re.finditer(re.escape(form), bare)
        )
        behind = 0
        for start, at, length, least in sorted(found):
            if start + length > behind:
                stop = _reach_on(bare, start + length, whole, at + length)
                first = _reach_back(bare, start, whole, at)
                if stop - first >= least:
                    behind = stop
                    yield first, stop


def _look_for(grams: Mapping[bytes, int], bare: bytes) -> list[tuple[int, int, int, int]]:
    """Where a text has grams of a long credential: their place in both, their length, and that of a piece that counts.

    The text is only looked at every LOOK_BYTES: a piece that is longer by a gram is never missed.
    """
    return [
        (start, at, PIECE_CHARS, WORDY_CHARS)
        for start in range(0, len(bare), LOOK_BYTES)
        if (at := grams.get(bare[start : start + PIECE_CHARS])) is not None
    ]


def _reach_on(text: bytes, stop: int, whole: bytes, at: int) -> int:
    """Where a piece ends that is equal to the credential from `at` on. Backslashes may stand before some characters."""
    while at < len(whole) and text[stop : stop + 1] in {whole[at : at + 1], b"\\"}:
        same = _count_same(text[stop : stop + STEP_BYTES], whole[at : at + STEP_BYTES], "big")
        stop, at = stop + same, at + same
        if same == STEP_BYTES or at == len(whole):
            continue
        run = _BACKSLASHES.match(text, stop) if whole[at] in _MAY_BE_ESCAPED else None
        if run is None or (whole[at] != _BACKSLASH and text[run.end() : run.end() + 1] != whole[at : at + 1]):
            break
        stop, at = run.end() + (whole[at] != _BACKSLASH), at + 1
    while at < len(whole) and whole[at] & 0xC0 == 0x80:  # not within a character
        stop, at = stop - 1, at - 1
    return stop


def _reach_back(text: bytes, start: int, whole: bytes, at: int) -> int:
    """Where a piece begins that is equal to the credential before `at`."""
    while start > 0 < at and text[start - 1] in {whole[at - 1], _BACKSLASH}:
        same = _count_same(text[max(start - STEP_BYTES, 0) : start], whole[max(at - STEP_BYTES, 0) : at], "little")
        start, at = start - same, at - same
        run = 0
        if same and whole[at] in _MAY_BE_ESCAPED:
            before = text[max(start - ESCAPE_BYTES, 0) : start]
            run = len(before) - len(before.rstrip(b"\\"))
        start -= run
        if not run and same < STEP_BYTES:
            break
    while whole[at : at + 1] and whole[at] & 0xC0 == 0x80:
        start, at = start + 1, at + 1
    return start


def _count_same(one: bytes, other: bytes, order: Literal["big", "little"]) -> int:
    """How many bytes are the same: at the beginning of both, or at their ends if the order is `little`."""
    length = min(len(one), len(other))
    if order == "big":
        one, other = one[:length], other[:length]
    else:
        one, other = one[len(one) - length :], other[len(other) - length :]
    differing = int.from_bytes(one, order) ^ int.from_bytes(other, order)
    return length - (differing.bit_length() + 7) // 8


def _hide_spans(text: bytes, spans: Iterable[Span]) -> bytes:
    ordered = sorted(spans)
    return b"".join(_replace(text, ordered)) if ordered else text


def _replace(text: bytes, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    end = 0
    for start, stop in spans:
        if start >= end:
            yield text[end:start]
            yield HIDDEN
        end = max(end, stop)
    yield text[end:]


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
