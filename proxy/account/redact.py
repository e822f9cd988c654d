"""Hides credentials in what is kept of a request: whole ones, and pieces of one that was cut.

Law: a credential is never found by chance only. One that is an ordinary word hides that word only behind the name of
a key: to replace each "test" in a text would tell what the key is. To hide them takes a thread: it is done only for a
request that is recorded or whose text is kept.
"""

import base64
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Self
from urllib.parse import quote

import orjson

from trimtab.proxy.config.policy import Same
from trimtab.proxy.config.schema import Config, list_secrets

HIDDEN = b"***"  # Stands for a credential, or for a piece of one
MIN_SECRET_CHARS = 12
"""A shorter credential is a placeholder. Chosen: longer than those that local servers document (`lm-studio`)."""
MIN_OWN_CHARS = 4  # Of a configured key that is sought. Chosen: a shorter one protects nothing, and is in every text.
PIECE_CHARS = 8
"""Of a recognised piece of a credential. Chosen: so many at random occur once; fewer help nobody to guess the rest."""
WORDY_CHARS = 16  # Of a piece that is recognised although it looks like words. Chosen: a longer run is no accident.
STRIDE_CHARS = 64
"""Between the pieces that are sought. Chosen: each costs a search, and a cut leaves a beginning or an end."""
LONG_CHARS = 1024  # The inside of a longer one is found by its grams. Chosen: its pieces would be dozens of searches.
MAX_PIECED = 8
"""Credentials of the configuration that are searched for in pieces, in Base64, in hexadecimal digits and in URLs, the
operator's first; others are only found as they are. Chosen: it takes no longer than a body's compression."""
_SCHEME = re.compile(r"(?:[A-Za-z]{1,6}\d{0,2}[-_]){0,3}")
"""What keys of one provider have in common: `sk-proj-`, `sk-ant-api03-`, `github_pat_`."""
_RANDOM = re.compile(r"\d|[a-z][A-Z].*?[a-z][A-Z]")
"""What is seldom in words, and mostly in eight random characters: a digit, or capitals within."""
_ESCAPED = re.compile(r"%[0-9A-F]{2}")
NAME_BYTES = 48  # Before a word, for the name of a key. Chosen: the longest name, and JSON within JSON behind it.
STEP_BYTES = 64  # Compared at once. Chosen: as the distance of the pieces of a credential that are sought.
LOOK_BYTES = 32  # Distance of the places looked at for a long credential. Chosen: it takes 3 ns a byte.
_RUN = rb"\\(?<!\\\\)\\*"
"""All backslashes of several. A search that could begin at each of them would take quadratic time; one that begins with
what must stand before them would look at each byte."""
_ASCII_ESCAPE = rb"(?:u(00[0-7][0-9a-fA-F])|/)"
"""An escape of JSON for a character that a key may have, at any depth: JSON may be a string in other JSON."""
_ANY_ESCAPE = rb"(?:u([dD][89abAB][0-9a-fA-F]{2})\\+u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|/)"
_ESCAPES = {
    (is_wide, is_quoted): re.compile(_RUN + (_ANY_ESCAPE if is_wide else _ASCII_ESCAPE) + (b"?" if is_quoted else b""))
    for is_wide in (False, True)
    for is_quoted in (False, True)
}
"""By `Hidden.is_wide` and `Hidden.is_quoted`."""
_NAMED = re.compile(
    rb"(?:bearer|basic|authorization|credentials?|key|token|secret|password|passwd|pwd)(?:\W{1,16}(?:is|was))?\W{1,16}\Z",
    re.IGNORECASE,
)
"""What stands before a key that is named as such: `Bearer test`, `"api_key": "test"`, `the password is test`."""
_ALONE = re.compile(rb"(?:^|[^A-Za-z0-9]|\\[bfnrt]|\\u[0-9a-fA-F]{4})\Z")
"""What stands before a word: no letter or digit, unless it is one of an escape."""
_BEHIND = rb"(?![A-Za-z0-9])"

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Seed:
    start: int
    text: str = field(repr=False)
    form: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Secret:
    """A credential. forms: as a text may hold it, the longest first. seeds: if one is in a text, so is a piece.

    grams: each PIECE_CHARS characters of a long one, and their place: a text is looked at here and there for them.
    is_bounded: it is short, and counts only if no letter or digit is next to it. is_word: it is an ordinary word, too,
    and counts only if it is named as a key. encoded: it in Base64, to find pieces: a line of Base64 may end within it.
    """

    text: str = field(repr=False)
    forms: tuple[bytes, ...] = field(repr=False)
    seeds: tuple[Seed, ...] = ()
    grams: Mapping[bytes, int] = field(default_factory=dict, repr=False)
    is_bounded: bool = False
    is_word: bool = False
    encoded: tuple["Secret", ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Hidden:
    """The credentials to hide, the longest first.

    is_wide: one of them has characters beyond ASCII. has_slash: one has a `/`, which JSON may escape. is_quoted: one
    has a quote or a backslash, which JSON always escapes. Pieces are then found in the text without backslashes.
    """

    secrets: tuple[Secret, ...] = field(repr=False)
    is_wide: bool
    has_slash: bool
    is_quoted: bool

    @classmethod
    def of(cls, shown: Iterable[str], own: Iterable[Secret] = ()) -> Self:
        """The credentials that a request has shown, and those of the configuration."""
        known = {secret.text: secret for secret in own}
        known |= {secret.text: secret for secret in map(read_secret, shown)}
        known |= {each.text: each for secret in tuple(known.values()) for each in secret.encoded}
        ordered = sorted(known.values(), key=lambda secret: len(secret.text), reverse=True)
        texts = "".join(secret.text for secret in ordered)
        return cls(tuple(ordered), not texts.isascii(), "/" in texts, '"' in texts or "\\" in texts)


def find_hidden(config: Config, shown: Iterable[str]) -> Hidden:
    return Hidden.of(shown, read_own(Same(config)))


@lru_cache(4)
def read_own(config: Same[Config]) -> tuple[Secret, ...]:
    found = [secret for secret in list_secrets(config.value) if len(secret) >= MIN_OWN_CHARS]
    own: list[Secret] = []
    for at, written in enumerate(found):
        secret = read_secret(written, is_thorough=at < MAX_PIECED)
        if len(secret.text) < MIN_SECRET_CHARS:  # a short one counts only in its place
            is_word = secret.text.isdecimal() or not _RANDOM.search(secret.text)
            secret = Secret(secret.text, secret.forms, is_bounded=True, is_word=is_word)
        own.append(secret)
    return tuple(own)


def read_secret(written: str, *, is_thorough: bool = True) -> Secret:
    """A credential in its forms. is_thorough: also encoded ones, and pieces."""
    data = written.encode("utf-8", "surrogateescape")
    text = data.decode("utf-8", "replace")
    is_thorough = is_thorough and len(text) >= MIN_SECRET_CHARS
    encoded = tuple(_write_base64(data)) if is_thorough else ()
    forms = {data, text.encode()}
    if is_thorough:
        in_url, digits = quote(text, safe="", errors="replace"), data.hex()
        in_lower = _ESCAPED.sub(lambda found: found[0].lower(), in_url)
        forms |= {form.encode() for form in (in_url, in_lower, digits, digits.upper())}
    forms |= {form for whole in encoded for form in (whole, whole.replace(b"+", b"-").replace(b"/", b"_"))}
    if "\N{REPLACEMENT CHARACTER}" in text:
        forms.add(data.decode("latin-1").encode())  # a header may be in Latin-1
    bare = text.replace("\\", "")
    seeds, grams = (tuple(find_seeds(bare)), find_grams(bare)) if is_thorough else ((), {})
    quoted = {form for each in forms for form in _quote(each)}
    pieces = tuple(Secret(one, (), tuple(find_seeds(one)), find_grams(one)) for one in map(bytes.decode, encoded))
    return Secret(text, tuple(sorted(quoted, key=len, reverse=True)), seeds, grams, encoded=pieces)


def find_seeds(text: str) -> Iterator[Seed]:
    """Pieces of a credential of which one is in each of its beginnings, ends, and longer parts."""
    found = _SCHEME.match(text)
    scheme = 0 if found is None else found.end()
    last = 0 if _has_grams(text) else len(text) - PIECE_CHARS
    starts = [(scheme, 1), *((at, 1) for at in range(scheme + STRIDE_CHARS, last, STRIDE_CHARS)), (len(text), -1)]
    for start, step in starts:
        stop = start + step * PIECE_CHARS
        while 0 <= stop <= len(text) and abs(stop - start) < WORDY_CHARS:
            if _RANDOM.search(text[min(start, stop) : max(start, stop)]):
                break
            stop += step
        if 0 <= stop <= len(text):
            piece = text[min(start, stop) : max(start, stop)]
            yield Seed(min(start, stop), piece, piece.encode("utf-8", "replace"))


def find_grams(text: str) -> dict[bytes, int]:
    if not _has_grams(text):
        return {}
    data = text.encode()
    return {data[at : at + PIECE_CHARS]: at for at in range(len(data) - PIECE_CHARS, -1, -1)}


def _has_grams(text: str) -> bool:
    """Whether a credential is long, and its places are those of its bytes."""
    return len(text) > LONG_CHARS and text.isascii()


def _write_base64(data: bytes) -> Iterator[bytes]:
    """The credential in Base64, wherever it begins: without the characters that it shares with its neighbours."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data)
        begin, bits = -(-before * 8 // 6), (before + len(data)) * 8
        yield encoded[begin : bits // 6]


def _quote(form: bytes) -> Iterator[bytes]:
    quoted = orjson.dumps(form.decode("utf-8", "replace"))[1:-1]
    yield from (form, quoted, quoted.replace(b"/", b"\\/"))


def redact(text: bytes, hidden: Hidden) -> bytes:
    """The text with `***` for each credential, also if it is written with the escapes of JSON."""
    for secret in hidden.secrets:
        # The longest first: a part of an escape that stayed would make the JSON invalid.
        for form in secret.forms:
            if form in text:
                text = _hide_spans(text, _find_form(text, form, secret))
    bare = _remove_escapes(text, hidden)
    if bare is text:
        return _hide_spans(text, _find_pieces(bare, hidden))
    forms = ((form, secret) for secret in hidden.secrets for form in secret.forms if form in bare)
    spans = [span for form, secret in forms for span in _find_form(bare, form, secret)]
    spans += _find_pieces(bare, hidden)
    return _hide_spans(text, _Escapes(text, hidden).find_places(spans)) if spans else text


def redact_text(text: str, hidden: Hidden) -> str:
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
    """A JSON value with `***` for each credential in a text or name. with_numbers: a number with one becomes a text."""
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


def _find_form(text: bytes, form: bytes, secret: Secret) -> Iterator[Span]:
    """Where a text has a credential in this form, and where it counts."""
    before = _NAMED if secret.is_word else _ALONE
    for found in re.finditer(re.escape(form) + (_BEHIND if secret.is_bounded else b""), text):
        start = found.start()
        if not secret.is_bounded or before.search(text, max(start - NAME_BYTES, 0), start):
            yield found.span()


def _remove_escapes(text: bytes, hidden: Hidden) -> bytes:
    """The text without escapes; the text itself if it has none that a credential might have."""
    first = b"\\" if hidden.is_quoted else b"\\u" if hidden.is_wide else b"\\u00"
    if first not in text and not (hidden.has_slash and b"\\/" in text):
        return text
    return _ESCAPES[hidden.is_wide, hidden.is_quoted].sub(_read_escape, text)


def _read_escape(found: re.Match[bytes]) -> bytes:
    if found.lastindex is None:  # first: a hostile text has nothing else
        return b"/" if found[0].endswith(b"/") else b""
    *pair, one = found.groups()
    if any(pair):
        high, low = pair
        return (bytes.fromhex(high.decode()) + bytes.fromhex(low.decode())).decode("utf-16-be").encode()
    return b"" if one.lower() == b"005c" else chr(int(one, 16)).encode("utf-8", "replace")


class _Escapes:
    """Where the escapes are that a text has and its bare form does not."""

    def __init__(self, text: bytes, hidden: Hidden) -> None:
        self._starts, self._places = [0], [(0, 0, 0)]  # in the bare form; and the escape's start, its stop, its length
        behind = 0
        for found in _ESCAPES[hidden.is_wide, hidden.is_quoted].finditer(text):
            start, stop = found.span()
            before_start, (_, before_stop, before_length) = self._starts[-1], self._places[-1]
            behind = before_start + before_length + start - before_stop
            self._starts.append(behind)
            self._places.append((start, stop, len(_read_escape(found))))

    def find_places(self, spans: Iterable[Span]) -> Iterator[Span]:
        for start, stop in spans:
            yield self._find(start)[0], self._find(stop - 1)[1]

    def _find(self, at: int) -> Span:
        number = bisect_right(self._starts, at) - 1
        start, stop, length = self._places[number]
        further = at - self._starts[number] - length
        if further < 0:
            return start, stop
        # A backslash that is dropped belongs to the character behind it.
        return start if further == length == 0 else stop + further, stop + further + 1


def _find_pieces(bare: bytes, hidden: Hidden) -> Iterator[Span]:
    """The spans of pieces of credentials in a text without escapes. Linear: what was found is passed over."""
    for secret in hidden.secrets:
        seeds = {seed.form: seed for seed in reversed(secret.seeds) if seed.form in bare}
        found = _look_for(secret.grams, bare) if secret.grams else []
        if not seeds and not found:
            continue
        bare_text = secret.text.replace("\\", "")
        whole = bare_text.encode("utf-8", "replace")
        found += (
            (one.start(), len(bare_text[: seed.start].encode("utf-8", "replace")), len(form), 0)
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
    """Where a piece ends that is equal to the credential from `at` on."""
    same = STEP_BYTES
    while same == STEP_BYTES:
        same = _count_same(text[stop : stop + STEP_BYTES], whole[at : at + STEP_BYTES], "big")
        stop, at = stop + same, at + same
    while at < len(whole) and whole[at] & 0xC0 == 0x80:  # not within a character
        stop, at = stop - 1, at - 1
    return stop


def _reach_back(text: bytes, start: int, whole: bytes, at: int) -> int:
    """Where a piece begins that is equal to the credential before `at`."""
    same = STEP_BYTES
    while same == STEP_BYTES:
        same = _count_same(text[max(start - STEP_BYTES, 0) : start], whole[max(at - STEP_BYTES, 0) : at], "little")
        start, at = start - same, at - same
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
    told: list[bytes] = []
    end = 0
    for start, stop in sorted(spans):
        if start >= end:
            told += (text[end:start], HIDDEN)
        end = max(end, stop)
    return b"".join((*told, text[end:])) if told else text


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
