"""Keys that this proxy gives to its clients: which of them a request shows.

Law: every key is compared, in constant time, and none is ever repeated.
"""

import hmac
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from itertools import islice

from proxy.http.headers import KEY_HEADER, Headers

MAX_SHOWN = 8
"""Credentials of one request that are looked at: more are no client's."""
ADMITTING_HEADERS = frozenset({KEY_HEADER, "api-key", "x-api-key", "x-goog-api-key"})
"""Where clients of OpenAI, Azure, Anthropic and Google put a key, besides `Authorization`."""
_BEARER = "bearer "


def find_key(keys: tuple[str, ...], headers: Headers) -> str | None:
    """The first of the keys that is shown; how long that takes tells nothing of which, or how much of it."""
    shown = [_hash(value) for value in islice(_find_shown(headers), MAX_SHOWN)]
    matches = [sum(hmac.compare_digest(known, value) for value in shown) > 0 for known in _hash_all(keys)]
    return next((key for key, is_shown in zip(keys, matches, strict=True) if is_shown), None)


def _find_shown(headers: Headers) -> Iterable[str]:
    """Everything in the request's headers that may be a key."""
    for name, value in headers:
        lower = name.lower()
        if lower == "authorization":
            if value[: len(_BEARER)].lower() == _BEARER:
                yield value[len(_BEARER) :].strip(" \t")
        elif lower in ADMITTING_HEADERS:
            yield value


@lru_cache(maxsize=4)
def _hash_all(keys: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(map(_hash, keys))


def _hash(key: str) -> bytes:
    """Of one length for all, so that a comparison does not tell how long a key is."""
    return sha256(key.encode("utf-8", "surrogateescape")).digest()
