"""Tells an upstream's "this does not fit the context window" from all its other errors, and reads its numbers.

Law: no I/O, never raises, linear in the length of the text. A rate limit is no overflow: there waiting helps.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from proxy.wire.json.repair import try_decode
from proxy.wire.overflow.numbers import MAX_NUMBER, read_numbers
from proxy.wire.overflow.wordings import BESIDE, CODE, MEANINGS, RATE, Kind

REFUSAL_STATUSES = frozenset({400, 413, 422, 500})
"""Source: the answers of some twenty servers; 500 is llama.cpp's, whose window filled while it generated."""
TOO_LARGE = 413
MAX_LAYERS = 3
"""Of errors within errors, as gateways write them."""
MAX_TEXT_CHARS = 2000
"""What is read of a message. Behind that stands what the server quotes of the request."""
MIN_STRING_CHARS = 100_000
"""A string limit below this is that of a name, not of what a message says."""


@dataclass(frozen=True, slots=True)
class Overflow:
    """An overflow as the upstream tells of it; None is what it does not tell.

    `limit` and `requested` are in `unit`: tokens, characters or bytes. `requested` is prompt and completion together
    where the server adds them; `prompt_tokens` and `completion_tokens` are what of it is which. `excess_tokens` is by
    how much the prompt was too long. `is_flat`: the body was an object without an `error`, which clients lose.
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


_NOT_OUTWEIGHED = frozenset({Kind.STRING, Kind.COMPLETION, Kind.GENERATION})
"""What a text says more exactly than a code."""
_CHARACTERS = re.compile(r"\d characters", re.IGNORECASE)
_QUOTED = re.compile(r"""['"]?\binput(?:_value)?['"]?\s{0,3}[:=]\s{0,3}['"{\[]""")
"""What validators quote of the request begins here, and is none of theirs."""


def read_overflow(status: int, body: bytes) -> Overflow | None:
    """What an answer of this status and body says of the window; None where it is about something else.

    An answer of status 200, or one event of a stream, may hold such an error too.
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
    """An error where an answer should be."""
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
    return replace(found, is_flat="error" not in answer)


def _unwrap(answer: dict[str, Any]) -> dict[str, Any]:
    """The members that tell of the error: of the innermost object that holds them."""
    members = answer
    for _ in range(MAX_LAYERS):
        inner = next((members[key] for key in ("error", "detail", "errors", "response") if members.get(key)), None)
        inner = inner[0] if isinstance(inner, list) else inner
        if not isinstance(inner, dict):
            break
        members = inner
    return members


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 < value < MAX_NUMBER  # true and false are no numbers


def _read_text(status: int, text: str, *, has_code: bool) -> Overflow | None:
    """What one text says; `has_code` where the error calls itself an overflow."""
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
        return None  # a fault in words that sound like it
    return found


def _read_size(found: Overflow) -> Overflow | None:
    """A size in bytes; or what a rate limit never lets through, however long one waits."""
    if not RATE.pattern.search(found.text):
        return replace(found, unit="bytes")
    return found if found.limit and (found.requested or 0) > found.limit else None


def _classify(text: str, *, has_code: bool) -> Kind | None:
    """What a text is about; None if it is no overflow."""
    matching = (row.kind for row in MEANINGS if row.pattern.search(text))
    kind = next((kind for kind in matching if kind is not Kind.COMPLETION or not BESIDE.pattern.search(text)), None)
    return Kind.PROMPT if has_code and kind not in _NOT_OUTWEIGHED else kind


def _find_texts(answer: dict[str, Any], members: dict[str, Any]) -> Iterator[str]:
    """Everything that an error says in words, the most telling first."""
    metadata = members.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None  # OpenRouter: what the provider said
    keys = ("message", "msg", "error", "detail")
    for told in (raw, *(each.get(key) for each in (members, answer) for key in keys)):
        text = told[0] if isinstance(told, list) and told else told
        if isinstance(text, str) and text:
            yield text
