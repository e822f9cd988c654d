"""Hides credentials in what is kept of a request: those that it holds, and the proxy's own.

Law: runs in a thread, only for a request that is recorded or whose text is kept.
"""

import re
from collections.abc import Collection, Iterable
from typing import Any

import orjson

from proxy.config.schema import Config
from proxy.exchange.arrival import Arrival, find_path_keys

HIDDEN = b"***"
"""Stands for a credential."""
MIN_OWN_CHARS = 4
"""A shorter key of the configuration is not searched for. Chosen: it would be found in ordinary words."""
_ESCAPE = re.compile(rb"\\+(?:u(00[0-9a-fA-F]{2})|/)")
"""An escape of JSON for a character that a key may have, at any depth: JSON may be a string in other JSON."""


def find_hidden(config: Config, arrival: Arrival) -> frozenset[str]:
    """The credentials that nothing that is kept of a request may hold."""
    upstreams = (config.upstream, *config.upstreams.values())
    own = {*config.clients.keys, config.admin_token, *(upstream.api_key for upstream in upstreams)}
    long = {key for key in own if key is not None and len(key) >= MIN_OWN_CHARS}
    return arrival.secrets | find_path_keys(arrival.headers, arrival.target) | long


def redact(text: bytes, secrets: Iterable[str]) -> bytes:
    """The text with `***` for each secret, also if it is written with the escapes of JSON."""
    longest_first = sorted(secrets, key=len, reverse=True)
    for secret in longest_first:
        # The longest first: a part of an escape that stayed would make the JSON invalid.
        for each in sorted(_write(secret), key=len, reverse=True):
            text = text.replace(each, HIDDEN)
    if b"\\u00" not in text and b"\\/" not in text:
        return text
    bare = _ESCAPE.sub(_read_escape, text)
    for secret in longest_first:
        if any(form in bare for form in _write(secret)):
            text = _match_escaped(secret).sub(HIDDEN, text)
    return text


def redact_text(text: str, secrets: Iterable[str]) -> str:
    """The text with `***` for each secret. Lone surrogates become `?`."""
    return redact(text.encode("utf-8", "replace"), secrets).decode("utf-8", "replace")


def redact_body(body: bytes, secrets: Collection[str]) -> bytes:
    """The body with `***` for each secret. JSON stays JSON, if need be in other bytes."""
    told = redact(body, secrets)
    if told == body or _is_json(told):
        return told
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return told
    return orjson.dumps(_redact_value(value, sorted(secrets, key=len, reverse=True)))


def _write(secret: str) -> set[bytes]:
    form = secret.encode("utf-8", "surrogateescape")
    quoted = orjson.dumps(form.decode("utf-8", "replace"))[1:-1]
    return {form, quoted, quoted.replace(b"/", b"\\/")}


def _read_escape(found: re.Match[bytes]) -> bytes:
    return b"/" if found[1] is None else chr(int(found[1], 16)).encode()


def _match_escaped(secret: str) -> re.Pattern[bytes]:
    """Matches the secret with any of its characters as an escape."""
    known = secret.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return re.compile(b"".join(map(_match_character, known)))


def _match_character(character: str) -> bytes:
    plain = rb"\\*" * (character in '"\\/') + re.escape(character.encode())
    return b"(?:" + plain + rb"|\\+u(?i:%04x))" % ord(character)


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _redact_value(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, dict):
        return {_redact_value(name, secrets): _redact_value(part, secrets) for name, part in value.items()}
    if isinstance(value, list):
        return [_redact_value(part, secrets) for part in value]
    if isinstance(value, bool) or value is None:
        return value
    told = redact_text(str(value), secrets)
    return value if told == str(value) else told
