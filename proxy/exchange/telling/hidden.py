"""Which credentials nothing that is kept of a request may hold, and in which forms a text may hold them.

Law: a credential is never found by chance only. One that is an ordinary word hides that word only behind the name of
a key: to replace each "test" in a text would tell what the key is.
"""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Self
from urllib.parse import quote

import orjson

from proxy.config.policies.overlay import Same
from proxy.config.schema import Config
from proxy.config.secrets import list_secrets
from proxy.exchange.arrival import MIN_SECRET_CHARS, Arrival, find_path_keys

MIN_OWN_CHARS = 4
"""A shorter key of the configuration is not searched for. Chosen: it protects nothing, and is in every text."""
PIECE_CHARS = 8
"""Length of a piece of a credential that is recognised. Chosen: eight random characters occur nowhere else, and fewer
help nobody to guess the rest."""
WORDY_CHARS = 16
"""Length of a piece that is recognised although it looks like words. Chosen: a longer run is no accident."""
STRIDE_CHARS = 64
"""Distance of the pieces inside a credential that are searched for. Chosen: each costs a search, and a cut leaves a
beginning or an end; only long tokens are cut at both."""
LONG_CHARS = 1024
"""The inside of a longer credential is found by its grams instead. Chosen: its pieces would be dozens of searches."""
MAX_PIECED = 8
"""Credentials of the configuration that are searched for in pieces, in Base64, in hexadecimal digits and in URLs, the
operator's first; others are only found as they are. Chosen: in a body of a megabyte that takes no longer than its
compression."""
_SCHEME = re.compile(r"(?:[A-Za-z]{1,6}\d{0,2}[-_]){0,3}")
"""What keys of one provider have in common: `sk-proj-`, `sk-ant-api03-`, `github_pat_`."""
_RANDOM = re.compile(r"\d|[a-z][A-Z].*?[a-z][A-Z]")
"""What is seldom in words, and mostly in eight random characters: a digit, or capitals within."""
_ESCAPED = re.compile(r"%[0-9A-F]{2}")


@dataclass(frozen=True, slots=True)
class Seed:
    """A piece of a credential: `start` is its place in it, `text` the piece."""

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

    is_wide: one of them has characters beyond ASCII. has_slash: one has a `/`, which JSON may escape.
    """

    secrets: tuple[Secret, ...] = field(repr=False)
    is_wide: bool
    has_slash: bool

    @classmethod
    def of(cls, shown: Iterable[str], own: Iterable[Secret] = ()) -> Self:
        """The credentials that a request has shown, and those of the configuration."""
        known = {secret.text: secret for secret in own}
        known |= {secret.text: secret for secret in map(read_secret, shown)}
        known |= {each.text: each for secret in tuple(known.values()) for each in secret.encoded}
        ordered = sorted(known.values(), key=lambda secret: len(secret.text), reverse=True)
        texts = "".join(secret.text for secret in ordered)
        return cls(tuple(ordered), not texts.isascii(), "/" in texts)


def find_hidden(config: Config, arrival: Arrival) -> Hidden:
    """The credentials that nothing that is kept of a request may hold."""
    return Hidden.of(arrival.secrets | find_path_keys(arrival.headers, arrival.target), read_own(Same(config)))


@lru_cache(4)
def read_own(config: Same[Config]) -> tuple[Secret, ...]:
    """The credentials of a configuration."""
    found = [secret for secret in list_secrets(config.value) if len(secret) >= MIN_OWN_CHARS]
    read = [read_secret(secret, is_thorough=at < MAX_PIECED) for at, secret in enumerate(found)]
    return tuple(map(_restrict, read))


def read_secret(written: str, *, is_thorough: bool = True) -> Secret:
    """A credential in its forms. is_thorough: also encoded ones, and pieces."""
    data = written.encode("utf-8", "surrogateescape")
    text = data.decode("utf-8", "replace")
    is_thorough = is_thorough and len(text) >= MIN_SECRET_CHARS
    encoded = tuple(_write_base64(data)) if is_thorough else ()
    forms = {data, text.encode(), *((*_write_url(text), *_write_hex(data)) if is_thorough else ())}
    forms |= {form for whole in encoded for form in (whole, whole.replace(b"+", b"-").replace(b"/", b"_"))}
    if "\N{REPLACEMENT CHARACTER}" in text:
        forms.add(data.decode("latin-1").encode())  # a header may be in Latin-1
    seeds, grams = (tuple(find_seeds(text)), find_grams(text)) if is_thorough else ((), {})
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
        while 0 <= stop <= len(text) and abs(stop - start) < WORDY_CHARS and not _is_random(text, start, stop):
            stop += step
        if 0 <= stop <= len(text):
            piece = text[min(start, stop) : max(start, stop)]
            yield Seed(min(start, stop), piece, piece.encode("utf-8", "replace"))


def find_grams(text: str) -> dict[bytes, int]:
    """The grams of a long credential, and where each is first."""
    if not _has_grams(text):
        return {}
    data = text.encode()
    return {data[at : at + PIECE_CHARS]: at for at in range(len(data) - PIECE_CHARS, -1, -1)}


def _has_grams(text: str) -> bool:
    """Whether a credential is long, and is written as it is in JSON."""
    return len(text) > LONG_CHARS and text.isascii() and '"' not in text and "\\" not in text


def _is_random(text: str, start: int, stop: int) -> bool:
    return _RANDOM.search(text[min(start, stop) : max(start, stop)]) is not None


def _restrict(secret: Secret) -> Secret:
    """A short key of the configuration counts only in its place."""
    if len(secret.text) >= MIN_SECRET_CHARS:
        return secret
    is_word = secret.text.isdecimal() or not _RANDOM.search(secret.text)
    return Secret(secret.text, secret.forms, is_bounded=True, is_word=is_word)


def _write_url(text: str) -> Iterator[bytes]:
    quoted = quote(text, safe="", errors="replace")
    yield from (quoted.encode(), _ESCAPED.sub(lambda found: found[0].lower(), quoted).encode())


def _write_hex(data: bytes) -> Iterator[bytes]:
    digits = data.hex()
    yield from (digits.encode(), digits.upper().encode())


def _write_base64(data: bytes) -> Iterator[bytes]:
    """The credential in Base64, wherever it begins: without the characters that it shares with its neighbours."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data)
        begin, bits = -(-before * 8 // 6), (before + len(data)) * 8
        yield encoded[begin : bits // 6]


def _quote(form: bytes) -> Iterator[bytes]:
    """The bytes as a JSON string writes them."""
    quoted = orjson.dumps(form.decode("utf-8", "replace"))[1:-1]
    yield from (form, quoted, quoted.replace(b"/", b"\\/"))
