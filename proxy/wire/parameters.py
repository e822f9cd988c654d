"""The parameters that trimtab adds to a question, and which of them an upstream refuses.

A refused form is the name of a member; `stream=true` if a streamed question is refused, too; or `limit>N` if only a
limit above N is refused.

Law: pure. Whatever an error says, the work is bounded, and only a parameter that the question has is found in it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

from trimtab.proxy.wire.json import try_decode

CACHE_KEY = "prompt_cache_key"
TEMPERATURE, STREAM, STREAMED, STREAM_OPTIONS = "temperature", "stream", "stream=true", "stream_options"
_ABOVE = "limit>"
SURE_FACTOR = 2
"""A required limit never exceeds the client's own if that is this many times the summary's: a model refuses a larger
limit than it has, and Claude Code allows thinking nearly all of its limit. Chosen: this leaves room to think."""
LEAST_LIMIT = 16
"""A smaller number in an error is no limit of tokens. Chosen: no model is that terse; most such numbers are counts."""
MAX_TEXT_CHARS = 2000
"""Part of each text that is read. Chosen: a server's own words come first, then what it quotes."""
MAX_BYTES = 128 * 1024
"""Part of an answer that is read. Chosen: errors are far shorter."""
MAX_TEXTS = 100
"""Chosen: more than a validator writes about one request."""
_FIELD_KEYS = frozenset({"param", "parameter", "params", "loc", "field", "fields", "path", "property", "target"})
"""Members of an error that name the member at fault. Source: OpenAI, pydantic, JSON:API, Azure, Google."""
_QUOTED_KEYS = frozenset({"input", "input_value", "request", "body", "value", "received"})
"""Members in which a validator quotes the request. Source: pydantic, and gateways."""
_NUMBER = re.compile(r"(?<![\w.-])\d[\d,_]{0,12}(?![\w-]|\.\d)")
"""Not the numbers in the names of models."""
_BOUND = re.compile(
    r"at most|up to|maximum|too (?:large|high|big)|exceed|less than|smaller|lower|greater|between|range|[<>≤≥]",
    re.IGNORECASE,
)
"""Words by which an error says that a smaller number would be accepted."""


@dataclass(frozen=True, slots=True)
class Question:
    """The model and the parameters with which a summary is requested.

    temperature: None if it is not sent.
    is_reasoning: the model's reasoning counts against its completion limit.
    refused: the forms of parameters that the upstream refuses.
    """

    model: str
    max_tokens: int
    temperature: float | None = None
    is_reasoning: bool = False
    refused: frozenset[str] = frozenset()


def write_parameters(
    question: Question,
    limits: Sequence[str],
    refusable_limits: Sequence[str],
    thinking_tokens: int | None,
    sure_tokens: int = 0,
    *,
    has_options: bool = False,
) -> dict[str, Any]:
    """The members that say how the model is to answer, without those that are refused.

    limits: the names of the limit, the usual one first; refusable_limits: those that may be left out.
    thinking_tokens: what the request allows for thinking, which the limit must include, and with which no temperature
        is accepted; None if it does not think.
    sure_tokens: a limit that the model surely accepts; 0 if none is known.
    has_options: a stream has its usage only if it is asked for.
    """
    most = question.max_tokens + (thinking_tokens or 0)
    # At most as many as the upstream has said that it accepts.
    most = min([most, *(int(form.removeprefix(_ABOVE)) for form in question.refused if form.startswith(_ABOVE))])
    is_sure = sure_tokens >= SURE_FACTOR * question.max_tokens
    required = min(most, sure_tokens) if is_sure else most
    members: dict[str, Any] = {name: required for name in limits if name not in refusable_limits}
    if question.temperature is not None and thinking_tokens is None and TEMPERATURE not in question.refused:
        members[TEMPERATURE] = question.temperature
    for name in _find_limit(question, refusable_limits):
        members[name] = most
    if STREAM not in question.refused:
        members[STREAM] = False
    elif STREAMED not in question.refused:
        members[STREAM] = True
        if has_options and STREAM_OPTIONS not in question.refused:
            members[STREAM_OPTIONS] = {"include_usage": True}
    return members


def list_forms(question: Question, limits: Sequence[str], more: Iterable[str] = ()) -> tuple[str, ...]:
    """The forms that an upstream may refuse in a question, in the order in which they are left out on suspicion."""
    stream = (STREAMED, STREAM_OPTIONS) if STREAM in question.refused else (STREAM,)
    names = (*(() if question.temperature is None else (TEMPERATURE,)), *_find_limit(question, limits), *stream, *more)
    return tuple(name for name in names if name not in question.refused)


def find_refused(question: Question, forms: Sequence[str], answer: bytes, limits: Sequence[str]) -> str | None:
    by_name = {form.partition("=")[0]: form for form in forms}
    names = _match(tuple({**by_name, **dict.fromkeys(limits)}))
    for found in chain.from_iterable(map(names.finditer, _find_texts(answer))):
        name = found.lastgroup or ""
        if name in limits and (most := _find_most(answer, question.max_tokens)):
            return f"{_ABOVE}{most}"
        if name in by_name:
            return by_name[name]
    return None


def _find_limit(question: Question, limits: Sequence[str]) -> list[str]:
    ordered = reversed(limits) if question.is_reasoning else limits
    return [name for name in ordered if name not in question.refused][:1]


@lru_cache(maxsize=64)
def _match(names: tuple[str, ...]) -> re.Pattern[str]:
    """Finds the names as snake_case, camelCase or words, not within other words; the longest at each place."""
    words = "|".join(_spell(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?<![A-Za-z0-9_])(?:{words})(?![A-Za-z0-9_])", re.IGNORECASE)


def _spell(name: str) -> str:
    spelled = r"[_\s-]?".join(name.split("_"))
    return f"(?P<{name}>{spelled}{'(?:ing|ed)?' if name == STREAM else ''})"


def _find_most(answer: bytes, tokens: int) -> int | None:
    """The limit that an error says would be accepted: the largest number in it, apart from the one that was sent.

    tokens: at most what was sent.
    """
    for text in filter(_BOUND.search, _find_texts(answer)):
        numbers = {int(number.replace(",", "").replace("_", "")) for number in _NUMBER.findall(text)}
        largest = max(numbers, default=0)
        below = [number for number in numbers if LEAST_LIMIT <= number < max(largest, tokens)]
        if below:
            return max(below)
    return None


def _find_texts(answer: bytes) -> list[str]:
    """What an error says: first the members that name a field, then all others; not what it quotes of the request."""
    decoded = try_decode(answer[:MAX_BYTES])
    if not isinstance(decoded, dict | list):
        return [answer[:MAX_TEXT_CHARS].decode("utf-8", "replace")]
    walked = [*_walk(decoded)]
    fields = [text for key, text in walked if key in _FIELD_KEYS]
    return [text[:MAX_TEXT_CHARS] for text in (*fields, *(text for _, text in walked))]


def _walk(decoded: Any) -> Iterator[tuple[str, str]]:
    waiting: list[tuple[str, Any]] = [("", decoded)]
    for _ in range(MAX_TEXTS):
        if not waiting:
            return
        key, value = waiting.pop(0)
        if isinstance(value, str):
            yield key, value
        elif isinstance(value, list):
            waiting += [(key, item) for item in value[:MAX_TEXTS]]
        elif isinstance(value, dict):
            for name, item in list(value.items())[:MAX_TEXTS]:
                yield "", name
                if name not in _QUOTED_KEYS:
                    waiting.append((name, item))
