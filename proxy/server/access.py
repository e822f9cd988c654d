"""Who may come in: clients by `client_keys`, our own pages by `admin_token`.

Law: a request is judged by its headers alone, before its body is read. Every key is compared, in constant time, and
none is ever repeated.
"""

import hmac
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from itertools import islice

from proxy.config.schema import Config
from proxy.http.errors import UnauthorizedError
from proxy.http.headers import CREDENTIAL_HEADERS, KEY_HEADER, Headers

MAX_SHOWN = 8
"""Credentials of one request that are looked at: more are no client's."""
_BEARER = "bearer "


def admit_client(config: Config, headers: Headers) -> None:
    """Let a client in that shows one of `client_keys`, and anyone where there are none. Raises UnauthorizedError."""
    if config.client_keys is not None and not _is_known(config.client_keys, headers):
        message = (
            "this proxy wants a key of its own: send one of its client_keys as Authorization: Bearer KEY, as api-key"
            f" or as x-api-key; or as {KEY_HEADER}, where Authorization is for the upstream"
        )
        raise UnauthorizedError(message)


def admit_admin(config: Config, headers: Headers) -> None:
    """Let in whoever shows `admin_token`; where there is none, whoever is a client. Raises UnauthorizedError."""
    if config.admin_token is None:
        admit_client(config, headers)
    elif not _is_known((config.admin_token,), headers):
        message = "this page is for who knows admin_token: send it as Authorization: Bearer TOKEN"
        raise UnauthorizedError(message)


def _is_known(keys: tuple[str, ...], headers: Headers) -> bool:
    """Whether one of the keys is shown; how long that takes tells nothing of which, or how much of it."""
    known = _hash_all(keys)
    shown = [_hash(value) for value in islice(_find_shown(headers), MAX_SHOWN)]
    return sum(hmac.compare_digest(key, value) for key in known for value in shown) > 0


def _find_shown(headers: Headers) -> Iterable[str]:
    """Everything in the request's headers that may be a key."""
    for name, value in headers:
        lower = name.lower()
        if lower == "authorization":
            if value[: len(_BEARER)].lower() == _BEARER:
                yield value[len(_BEARER) :].strip(" \t")
        elif lower == KEY_HEADER or lower in CREDENTIAL_HEADERS:
            yield value


@lru_cache(maxsize=4)
def _hash_all(keys: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(map(_hash, keys))


def _hash(key: str) -> bytes:
    """Of one length for all, so that a comparison does not tell how long a key is."""
    return sha256(key.encode("utf-8", "surrogateescape")).digest()
