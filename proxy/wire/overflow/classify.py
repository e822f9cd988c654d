"""Tells an upstream's "this does not fit the context window" from all its other errors, and reads its numbers.

Law: no I/O, never raises, linear in the length of the text. A rate limit is no overflow: there waiting helps.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import msgspec

from proxy.wire.json.repair import DECODE_ERRORS
from proxy.wire.overflow.numbers import MAX_NUMBER, read_number, read_numbers

REFUSAL_STATUSES = frozenset({400, 413, 422, 500})
"""Source: the answers of some twenty servers; 500 is llama.cpp's, whose window filled while it generated."""
TOO_LARGE = 413
MAX_LAYERS = 3
"""Of errors within errors, as gateways write them."""
MAX_TEXT_CHARS = 2000
"""What is read of a message. Behind that stands what the server quotes of the request."""
QUOTE_CHARS = 24
"""Before a number: enough to tell a server's own words from a client's."""
MIN_STRING_CHARS = 100_000
"""A string limit below this is that of a name, not of what a message says."""


class Kind(StrEnum):
    """What did not fit."""

    PROMPT = "prompt"
    GENERATION = "generation"  # the answer, while it was written
    STRING = "string"  # one of the request
    COMPLETION = "completion"  # the one that was asked for
    SIZE = "size"  # in bytes, or in what one request may use of a rate limit


@dataclass(frozen=True, slots=True)
class Overflow:
    """An overflow as the upstream tells of it; None is what it does not tell.

    `limit` and `requested` are in `unit`: tokens, characters or bytes. `requested` is prompt and completion together
    where the server adds them; `prompt_tokens` and `completion_tokens` are what of it is which. `is_least`: the server
    stopped counting there. `excess_tokens` is by how much the prompt was too long. `is_flat`: the body was an object
    without an `error`, which clients lose.
    """

    kind: Kind
    text: str = ""
    limit: int | None = None
    requested: int | None = None
    unit: str = "tokens"
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    excess_tokens: int | None = None
    is_least: bool = False
    is_flat: bool = False

    @property
    def telling_words(self) -> list[str]:
        """What of the text makes it an overflow: its limit with what stands before, else the words as such."""
        numbers = [match for match in _DIGITS.finditer(self.text) if read_number(match[0]) == self.limit]
        if numbers:
            return [self.text[max(match.start() - QUOTE_CHARS, 0) : match.end()] for match in numbers]
        found = (pattern.search(self.text) for pattern in (_CONTEXT, _PROMPT))
        return [match[0] for match in found if match is not None]


_CODES = re.compile(
    r"context_?(?:length|window|size)|context_exceeded|exceed_context|out_?of_?context|max_(?:prompt|input)_tokens"
    r"|too_many_tokens",
    re.IGNORECASE,
)
_RATE = re.compile(
    r"rate.?limit|too many requests|throttl|quota|per (?:minute|min|hour|day|month|second)\b|\b[TR]P[MD]\b|please wait"
    r"|try again in|monthly|billing|\bcredits?\b|subscription|upgrade your plan",
    re.IGNORECASE,
)
_TOO_LARGE_AT_ALL = re.compile(r"request too large", re.IGNORECASE)
_STRING = re.compile(r"string too long\. expected a string with maximum length", re.IGNORECASE)
_OTHER = re.compile(
    r"array too long|\b(?:image|audio|video|file)s?\b|\b(?:schema|properties|logprobs|cache.?key|name|user|id)\b"
    r"|\w\[\d{1,6}\]\.|\b(?:temperature|(?:top_)?logprobs|logit_bias|stop|metadata|tools?|functions?|json|content-length)\b"
    r"|(?:thinking|reasoning).?budget|budget.?tokens|timed out|\bseconds\b|not supported|does not support",
    re.IGNORECASE,
)
_COMPLETION = re.compile(
    r"at most \d[\d,]{0,20} (?:completion|output) tokens|\b(?:maximum|max) tokens you requested|num_predict"
    r"|(?<!and )maximum (?:allowed )?(?:number of )?(?:output|completion) tokens|maximum value for .{0,3}max_"
    r"|\d (?:output|completion) tokens|tokens of output|number of (?:output|completion) tokens"
    r"|max_(?:completion_|output_)?tokens\W{0,3} must be"
    r"|max_(?:completion_|output_|new_)?tokens\b(?!.{0,90}(?:input|prompt|context)).{0,40}(?:too large|exceed)",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"maximum context length|context length is only|exceed context limit"
    r"|(?:messages|prompt|input|request has)\b.{0,40}\d",
    re.IGNORECASE,
)
"""The prompt is spoken of, too: then the two together are too long."""
_NOTHING_LEFT = re.compile(r"must be at least \d{1,3}, got -\d", re.IGNORECASE)
"""vLLM takes the prompt from the window before it looks at the completion."""
_GENERATION = re.compile(r"^\W{0,3}context (?:size|length|window) has been exceeded", re.IGNORECASE)
_BODY_SIZE = re.compile(
    r"(?:message|request|payload|body) (?:size|entity|body) (?!.{0,40}context).{0,40}(?:exceed|too large)"
    r"|(?:payload|entity) too large",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"(?:maximum|model.?s|available|configured|max) context|(?:prompt|input|request|messages?|tokens)\b.{0,80}\bcontext"
    r"[ _](?:length|size|window|limit)|exceed.{0,40}context|context[ _](?:length|size|window|limit).{0,20}exceed"
    r"|context[ _](?:length|size|window) (?:of |is |\()?\d|`inputs`? tokens \+",
    re.IGNORECASE,
)
"""Nothing but an overflow is said like this, whatever else is said beside it."""
_PROMPT = re.compile(
    r"max(?:imum)? (?:prompt|input|model|sequence) (?:length|size|window)"
    r"|(?:prompt|input|request|messages?|conversation)\b.{0,80}\btoo (?:long|large|big)"
    r"|(?:prompt|input|request|messages?|conversation)\b.{0,60}\b(?:long|larg)er than.{0,60}"
    r"\b(?:context|tokens?|length|limit|max)"
    r"|(?:prompt|input|sequence) (?:length|tokens?|size)\b.{0,60}(?:exceed|greater than)|prompt exceeds"
    r"|exceed.{0,40}token limit|token (?:count|limit|length)\b.{0,40}exceed|token length must be"
    r"|\btokens\b.{0,80}\bexceed|exceed.{0,60}\btokens\b|prompt_tokens\b.{0,40}(?:less than|exceed)"
    r"|(?:prompt|input) is \d[\d,]{0,20} tokens|context overflow|sequence too long|supports a context of|上下文长度"
    r"|tokens?\b.{0,40}\b(?:above|over|greater than)\b.{0,40}(?:limit|max)|tokens? ?\(?\d{0,10}\)? ?> ?(?:\d|max)"
    r"|reduce (?:the length of |the number of tokens in |your |the )(?:the |your )?(?:input |messages?|prompt|input)"
    r"|too many (?:input |prompt )?tokens|range of input length|\binputs`? must have less"
    r"|exceed.{0,20}\bmax_model_len|max_seq_len|tokens? ?\d{0,20} ?> ?max|current length is \d{1,20}.{0,20}limit is"
    r"|context[ _](?:length|size|window|limit)",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"\d{1,20}+(?:[,_]\d{3}(?!\d)){0,6}+")
_CHARACTERS = re.compile(r"\d characters", re.IGNORECASE)
_QUOTED = re.compile(r"""['"]?\binput(?:_value)?['"]?\s{0,3}[:=]\s{0,3}['"{\[]""")
"""What validators quote of the request begins here, and is none of theirs."""


def read_overflow(status: int, body: bytes) -> Overflow | None:
    """What an answer of this status and body says of the window; None where it is about something else.

    An answer of status 200, or one event of a stream, may hold such an error too.
    """
    if status != 200 and status not in REFUSAL_STATUSES:
        return None
    answer = _decode(body)
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
    has_code = any(isinstance(name, str) and _CODES.search(name) for name in named)
    found = next(filter(None, (_read_text(status, text, has_code=has_code) for text in texts or [""])), None)
    if found is None and status == TOO_LARGE and not any(map(_RATE.search, texts)):
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
    requested = None if kind is Kind.COMPLETION or _CHARACTERS.search(text) else numbers.requested
    found = Overflow(
        kind,
        text,
        numbers.limit,
        requested,
        prompt_tokens=None if requested is None else numbers.prompt,
        completion_tokens=numbers.completion,
        excess_tokens=numbers.excess,
        is_least=numbers.is_least,
    )
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
    if not _RATE.search(found.text):
        return replace(found, unit="bytes")
    return found if found.limit and (found.requested or 0) > found.limit else None


def _classify(text: str, *, has_code: bool) -> Kind | None:
    """What a text is about; None where it is no overflow."""
    is_rate = _RATE.search(text) is not None
    found = (
        (_STRING.search(text), Kind.STRING),
        (_NOTHING_LEFT.search(text), Kind.PROMPT),
        (_COMPLETION.search(text) and not _BESIDE.search(text), Kind.COMPLETION),
        (_GENERATION.search(text), Kind.GENERATION),
        (has_code or (_CONTEXT.search(text) and not is_rate), Kind.PROMPT),
        (is_rate, Kind.SIZE if _TOO_LARGE_AT_ALL.search(text) else None),
        (_BODY_SIZE.search(text), Kind.SIZE),
        (_PROMPT.search(text) and not _OTHER.search(text), Kind.PROMPT),
    )
    return next((kind for matched, kind in found if matched), None)


def _find_texts(answer: dict[str, Any], members: dict[str, Any]) -> Iterator[str]:
    """Everything that an error says in words, the most telling first."""
    metadata = members.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None  # OpenRouter: what the provider said
    keys = ("message", "msg", "error", "detail")
    for told in (raw, *(each.get(key) for each in (members, answer) for key in keys)):
        text = told[0] if isinstance(told, list) and told else told
        if isinstance(text, str) and text:
            yield text


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except DECODE_ERRORS:
        return None
