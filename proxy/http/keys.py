"""Which of the configured client keys a request holds.

Law: every key is compared, in constant time. No key is ever written anywhere.
"""

import binascii
import hmac
from base64 import b64decode
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from itertools import islice

from proxy.http.headers import KEY_HEADER, Headers

MAX_SHOWN = 8
"""Credentials of one request that are compared. Chosen: real clients send one or two; bounds the work."""
ADMITTING_HEADERS = frozenset({KEY_HEADER, "api-key", "x-api-key", "x-goog-api-key"})
"""Headers for a key other than `Authorization`: trimtab's own, Azure's, Anthropic's and Google's."""
_BEARER, _BASIC = "bearer ", "basic "


def find_key(keys: tuple[str, ...], headers: Headers, *, takes_basic: bool = False) -> str | None:
    """The first of the configured keys that the request holds; None if it holds none of them.

    takes_basic: the key may be the password of basic authentication, which browsers ask people for.

    The time taken does not depend on which key matches, nor on how much of a wrong key is right.
    """
    shown = [_hash(value) for value in islice(_find_shown(headers, takes_basic=takes_basic), MAX_SHOWN)]
    matches = [sum(hmac.compare_digest(known, value) for value in shown) > 0 for known in _hash_all(keys)]
    return next((key for key, is_shown in zip(keys, matches, strict=True) if is_shown), None)


def _find_shown(headers: Headers, *, takes_basic: bool) -> Iterable[str]:
    for name, value in headers:
        lower = name.lower()
        if lower == "authorization":
            if value[: len(_BEARER)].lower() == _BEARER:
                yield value[len(_BEARER) :].strip(" \t")
            elif takes_basic and value[: len(_BASIC)].lower() == _BASIC:
                yield from _read_password(value[len(_BASIC) :].strip(" \t"))
        elif lower in ADMITTING_HEADERS:
            yield value


def _read_password(encoded: str) -> Iterable[str]:
    """The password of basic authentication, in UTF-8 (RFC 7617); nothing if there is none."""
    try:
        _, colon, password = b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return
    if colon:
        yield password


@lru_cache(maxsize=4)
def _hash_all(keys: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(map(_hash, keys))


def _hash(key: str) -> bytes:
    # Hashes have one length, so the time of a comparison does not reveal the length of a key.
    return sha256(key.encode("utf-8", "surrogateescape")).digest()
