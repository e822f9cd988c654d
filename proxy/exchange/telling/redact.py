"""Hides credentials in what is kept of a request: whole ones, and pieces of one that was cut.

Law: runs in a thread, only for a request that is recorded or whose text is kept.
"""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import orjson

from proxy.exchange.telling.hidden import Hidden, Secret, Seed
from proxy.state.recordings.format import HIDDEN

NAME_BYTES = 48
"""Bytes before a word in which the name of a key is looked for. Chosen: the longest name, and what may follow
it in JSON within JSON."""
ESCAPE_BYTES = 24
"""The longest escape of a character. Chosen: a pair of surrogates, six backslashes each."""
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


def redact(text: bytes, hidden: Hidden) -> bytes:
    """The text with `***` for each credential, also if it is written with the escapes of JSON."""
    for secret in hidden.secrets:
        # The longest first: a part of an escape that stayed would make the JSON invalid.
        for form in secret.forms:
            if form in text:
                text = _hide(text, re.compile(re.escape(form)), secret)
    bare = _remove_escapes(text, hidden)
    if bare is not text:
        for secret in hidden.secrets:
            if any(form in bare for form in secret.forms):
                text = _hide(text, _match_escaped(secret.text), secret)
    return _hide_pieces(text, bare, hidden)


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


def _match_escaped(text: str) -> re.Pattern[bytes]:
    """Matches the text with any of its characters as an escape."""
    pairs = zip(f" {text}", text, strict=False)
    return re.compile(b"".join(_match_character(each, before=before) for before, each in pairs))


def _match_character(character: str, *, before: str = "") -> bytes:
    """Matches a character, which may be an escape, behind another one."""
    run = rb"\\+" if before == "\\" else _RUN
    plain = b"(?:" + run + b")?" if character in '"\\/' else b""
    plain += re.escape(character.encode("utf-8", "replace"))
    units = character.encode("utf-16-be", "surrogatepass").hex()
    escape = b"".join(b"%su(?i:%s)" % (run, units[at : at + 4].encode()) for at in range(0, len(units), 4))
    return b"(?:" + plain + b"|" + escape + b")"


def _hide_pieces(text: bytes, bare: bytes, hidden: Hidden) -> bytes:
    """The text with `***` for each piece of a credential, as long as it is."""
    spans: list[tuple[int, int]] = []
    for secret in hidden.secrets:
        for seed in secret.seeds:
            if seed.form in bare:
                form = re.compile(re.escape(seed.form)) if bare is text else _match_escaped(seed.text)
                spans += map(partial(_extend, text, secret, seed), form.finditer(text))
    return b"".join(_replace(text, sorted(spans))) if spans else text


def _extend(text: bytes, secret: Secret, seed: Seed, found: re.Match[bytes]) -> tuple[int, int]:
    """The span of the piece that a seed was found in: up to where the text differs from the credential."""
    start, stop = found.span()
    for character in secret.text[seed.start + len(seed.text) :]:
        further = re.compile(_match_character(character)).match(text, stop)
        if further is None:
            break
        stop = further.end()
    for character in reversed(secret.text[: seed.start]):
        before = re.compile(_match_character(character) + rb"\Z").search(text, max(start - ESCAPE_BYTES, 0), start)
        if before is None:
            break
        start = before.start()
    return start, stop


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
