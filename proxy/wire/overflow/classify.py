"""Distinguishes errors that say "this does not fit the context window" from all others, and reads their numbers.

Law: no I/O, never raises, linear in the length of the text. A rate limit is not an overflow, because waiting helps.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from trimtab.proxy.wire.json.decode import try_decode
from trimtab.proxy.wire.overflow.numbers import MAX_NUMBER, read_numbers
from trimtab.proxy.wire.overflow.wordings import BESIDE, CODE, MEANINGS, RATE, Kind

REFUSAL_STATUSES = frozenset({400, 413, 422, 500})
"""Statuses of overflow errors. Source: the responses of about twenty servers. llama.cpp sends 500 if its context window
fills up while it generates."""
TOO_LARGE = 413  # Source: RFC 9110 section 15.5.14
MAX_LAYERS = 3
"""Levels of nested error objects that are read. Chosen: gateways wrap the error of a provider once or twice."""
MAX_TEXT_CHARS = 2000
"""Part of an error's text that is read. Chosen: the server's own words come first; what it quotes of the request comes
later."""
MIN_STRING_CHARS = 100_000
"""A smaller limit on the length of a string is about a name, not about a message's text. Chosen: far above names, far
below OpenAI's limit of 1,048,576 for texts."""


@dataclass(frozen=True, slots=True)
class Overflow:
    """An overflow as the upstream reports it. A number is None if the upstream does not report it.

    limit, requested: in `unit`, which is tokens, characters or bytes. `requested` is prompt and completion together if
    the server adds them.
    prompt_tokens, completion_tokens: the parts of `requested`.
    excess_tokens: by how much the prompt was too long.
    is_flat: the body has no `error` object, so clients would not see its message.
    is_coded: a code of the server says that this is an overflow, so the words of its text prove nothing more.
    """

    kind: Kind
    text: str = ""
    limit: int | None = None
    requested: int | None = None
    unit: str = "tokens"
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    excess_tokens: int | None = None
    is_flat: bool = False
    is_coded: bool = False


_NOT_OUTWEIGHED = frozenset({Kind.STRING, Kind.COMPLETION, Kind.GENERATION})
"""Kinds that a text names more exactly than an error code does; the code does not override them."""
_CHARACTERS = re.compile(r"\d characters", re.IGNORECASE)
_QUOTED = re.compile(r"""['"]?\binput(?:_value)?['"]?\s{0,3}[:=]\s{0,3}['"{\[]""")
"""Where a validator begins to quote the request. The text after it is the client's, not the server's."""


def read_overflow(status: int, body: bytes) -> Overflow | None:
    """What a response says about exceeding the context window; None if it is about something else.

    A response with status 200, or one event of a stream, may contain such an error, too.
    """
    if status != 200 and status not in REFUSAL_STATUSES:
        return None
    answer = try_decode(body)
    if isinstance(answer, list) and answer:
        answer = answer[0]
    if status == 200:
        return _read_success(answer)
    if not body.strip():
        return Overflow(Kind.SIZE) if status in {400, TOO_LARGE} else None
    members = answer if isinstance(answer, dict) else {"error": body.decode("utf-8", "replace")}
    return _read_refusal(status, members)


def _read_success(answer: Any) -> Overflow | None:
    """The overflow in a body with status 200 that is an error, not a completion."""
    is_error = isinstance(answer, dict) and any(map(answer.get, ("error", "message", "detail", "errors", "response")))
    return _read_refusal(400, answer) if is_error else None


def _read_refusal(status: int, answer: dict[str, Any]) -> Overflow | None:
    members = _unwrap(answer)
    texts = [_QUOTED.split(text, maxsplit=1)[0][:MAX_TEXT_CHARS] for text in _find_texts(answer, members)]
    named = [members.get("code"), members.get("type"), answer.get("error_type")]
    has_code = any(isinstance(name, str) and CODE.pattern.search(name) for name in named)
    found = next(filter(None, (_read_text(status, text, has_code=has_code) for text in texts or [""])), None)
    if found is None and status == TOO_LARGE and not any(map(RATE.pattern.search, texts)):
        found = Overflow(Kind.SIZE, texts[0] if texts else "")
    if found is None:
        return None
    limit, requested = members.get("n_ctx"), members.get("n_prompt_tokens")
    if _is_number(limit) and _is_number(requested):
        found = replace(found, limit=limit, requested=requested, prompt_tokens=requested)
    return replace(found, is_flat="error" not in answer, is_coded=has_code)


def _unwrap(answer: dict[str, Any]) -> dict[str, Any]:
    members = answer
    for _ in range(MAX_LAYERS):
        inner = next((members[key] for key in ("error", "detail", "errors", "response") if members.get(key)), None)
        inner = inner[0] if isinstance(inner, list) else inner
        if not isinstance(inner, dict):
            break
        members = inner
    return members


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 < value < MAX_NUMBER  # not isinstance: true and false are ints in Python


def _read_text(status: int, text: str, *, has_code: bool) -> Overflow | None:
    """The overflow that one text describes. `has_code`: the error has the code of an overflow."""
    kind = _classify(text, has_code=has_code)
    if kind is None:
        return None
    numbers = read_numbers(text)
    if kind is Kind.COMPLETION or _CHARACTERS.search(text):
        numbers = numbers._replace(requested=None, prompt_tokens=None)
    found = Overflow(kind, text, **numbers._asdict())
    if kind is Kind.STRING:
        is_text = (numbers.limit or 0) >= MIN_STRING_CHARS
        return replace(found, requested=None, unit="characters") if is_text else None
    if kind is Kind.SIZE:
        return _read_size(found)
    if status == 500 and kind is not Kind.GENERATION and not has_code and numbers.limit is None:
        return None  # an internal error of the server, whose text only sounds like an overflow
    return found


def _read_size(found: Overflow) -> Overflow | None:
    """A limit in bytes; or a request larger than a whole rate limit, for which waiting does not help."""
    if not RATE.pattern.search(found.text):
        return replace(found, unit="bytes")
    return found if found.limit and (found.requested or 0) > found.limit else None


def _classify(text: str, *, has_code: bool) -> Kind | None:
    matching = (row.kind for row in MEANINGS if row.pattern.search(text))
    kind = next((kind for kind in matching if kind is not Kind.COMPLETION or not BESIDE.pattern.search(text)), None)
    return Kind.PROMPT if has_code and kind not in _NOT_OUTWEIGHED else kind


def _find_texts(answer: dict[str, Any], members: dict[str, Any]) -> Iterator[str]:
    metadata = members.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None  # OpenRouter: the text of the provider
    keys = ("message", "msg", "error", "detail")
    for told in (raw, *(each.get(key) for each in (members, answer) for key in keys)):
        text = told[0] if isinstance(told, list) and told else told
        if isinstance(text, str) and text:
            yield text
