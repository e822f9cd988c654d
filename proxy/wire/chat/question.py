"""Writes the request for a summary and reads the response.

Law: of a request that continues a conversation, each member that the upstream renders into the prompt, or by which it
finds its prompt cache, is copied unchanged. So the summary request reads the cache of the conversation. Members that
only say how to respond are left out.

Sources: OpenAI's, Anthropic's, OpenRouter's, Fireworks', Mistral's and DashScope's references of chat completions and
prompt caching; the request models of vLLM, SGLang and llama.cpp.
"""

from contextlib import suppress
from typing import Any

import msgspec
import orjson

from trimtab.proxy.wire.answers.sse import read_events
from trimtab.proxy.wire.answers.usage import Usage, read_usage
from trimtab.proxy.wire.chat.message import encode_message
from trimtab.proxy.wire.chat.request import drop_thinking, is_bound, mark_messages
from trimtab.proxy.wire.codec import Completion, Question, Request, UndecodableError
from trimtab.proxy.wire.json.decode import DECODE_ERRORS, decode_member
from trimtab.proxy.wire.parameters import write_parameters
from trimtab.rules.conversation import Conversation, Message, Role

_RENDERED = frozenset(
    {
        "tools", "functions", "tool_choice", "function_call", "parallel_tool_calls", "response_format", "documents",
        "reasoning", "reasoning_effort", "verbosity", "output_config", "thinking", "thinking_budget", "enable_thinking",
        "prompt_mode", "safe_prompt", "web_search_options", "plugins", "transforms", "chat_template",
        "chat_template_kwargs", "add_special_tokens", "mm_processor_kwargs", "media_io_kwargs", "extra_body",
        "preset", "context_management", "search_parameters", "enable_search", "search_options", "preserve_thinking",
        "vl_high_resolution_images", "chat_template_args",
    }
)  # fmt: skip
"""Members that are part of the prompt, or of hidden instructions in it.

`context_management` is one of them: the upstream edits the context before it renders it, so its cache holds the edited
text.
"""
_CACHED = frozenset(
    {
        "model", "models", "route", "provider", "session_id", "service_tier", "user", "safety_identifier",
        "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "prompt_cache_isolation_key",
        "cache_control", "cache_prompt", "cache_salt", "id_slot", "lora", "lora_path", "store",
        "cached_content", "data_parallel_rank", "metadata",
    }
)  # fmt: skip
"""Members that name the model, the account and the prompt cache, or say what the upstream may store."""
_TAKEN_OVER = _RENDERED | _CACHED
_OF_SESSION = frozenset(
    {
        "route", "provider", "session_id", "service_tier", "user", "safety_identifier", "prompt_cache_key",
        "prompt_cache_retention", "prompt_cache_isolation_key", "cache_salt", "store", "metadata", "transforms",
    }
)  # fmt: skip
"""Members by which an upstream knows the account and the session, whatever is asked."""
_FREE_CHOICES = (None, "auto", "none")
_BUDGETS = frozenset({"budget_tokens", "thinking_budget"})
_THINKING = frozenset({"thinking", "reasoning", "thinking_budget", "extra_body"})

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def write_members(body: bytes, *, is_apart: bool = False) -> dict[str, msgspec.Raw] | None:
    """The members of a request's body that the body of a summary request begins with; its messages are not among them.

    is_apart: the summary request does not continue the conversation; only the session is the same.

    None if the request prescribes the form of the response, which a summary would not have, or if the members cannot
    be decoded.
    """
    try:
        taken = _OF_SESSION if is_apart else _TAKEN_OVER
        members = {name: value for name, value in _decode_members(body).items() if name in taken}
        if _prescribes_form(members):
            return None
        return {name: value for name, value in members.items() if not _forces_call(name, value)}
    except DECODE_ERRORS:
        return None


def _prescribes_form(members: dict[str, msgspec.Raw]) -> bool:
    form, output = (decode_member(members.get(name)) for name in ("response_format", "output_config"))
    is_free = form is None or (isinstance(form, dict) and form.get("type") == "text")
    return not is_free or (isinstance(output, dict) and output.get("format") is not None)


def _forces_call(name: str, value: msgspec.Raw) -> bool:
    """Whether a member forces the model to call a tool; it should write a summary instead."""
    if name not in {"tool_choice", "function_call"}:
        return False
    choice = decode_member(value)
    if isinstance(choice, dict):
        allowed = choice.get("allowed_tools")
        choice = allowed if isinstance(allowed, dict) else choice
        choice = choice.get("mode") or choice.get("type") or choice
    return choice not in _FREE_CHOICES


def read_thinking(members: dict[str, msgspec.Raw]) -> int | None:
    """The tokens that a request allows for thinking; `max_tokens` must be larger. 0 if it gives no number.

    None if the request does not turn thinking on itself. With thinking on, Anthropic accepts no temperature.
    """
    found = [_find_thinking({name: decode_member(members[name])}) for name in _THINKING & members.keys()]
    return max((tokens for tokens in found if tokens is not None), default=None)


def _find_thinking(value: dict[str, Any], *, is_reasoning: bool = False) -> int | None:
    """As `read_thinking`, for one object and those in it. `max_tokens` is a budget only in OpenRouter's `reasoning`."""
    found = [0] if value.get("type") in ("enabled", "adaptive") else []
    for name, member in value.items():
        if isinstance(member, dict):
            tokens = _find_thinking(member, is_reasoning=name == "reasoning")
            found += [] if tokens is None else [tokens]
        elif (name in _BUDGETS or (is_reasoning and name == "max_tokens")) and type(member) is int and member > 0:
            found.append(member)
    return max(found, default=None)


LIMITS = ("max_tokens", "max_completion_tokens")
"""Models that think accept only the second one."""
CACHE_KEY = "prompt_cache_key"
_NULL = msgspec.Raw(b"null")


class _Part(msgspec.Struct):
    text: str | None = None


class _Content(msgspec.Struct):
    content: str | list[_Part] | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct):
    message: _Content = msgspec.field(default_factory=_Content)
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: msgspec.Raw = _NULL


class _Piece(msgspec.Struct):
    index: int = 0
    delta: _Content = msgspec.field(default_factory=_Content)
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Piece] | None = None
    usage: msgspec.Raw = _NULL
    error: msgspec.Raw = _NULL


def write_question(question: Question, prompt: str) -> bytes:
    """The body of a request that contains only `prompt`."""
    messages = [{"role": "user", "content": prompt}]
    return orjson.dumps({"model": question.model, "messages": messages, **_write(question, None)})


def write_question_behind(
    request: Request, prefix: Conversation, question: Question, prompt: str, *, is_apart: bool = False
) -> bytes | None:
    """The body of a request with `prompt` after the messages of `prefix`, and with the request's tools.

    None if the request prescribes the form of the response, or if the members of its body cannot be decoded.
    """
    members = write_members(request.body, is_apart=is_apart)
    if members is None:
        return None
    asked = Message(Role.USER, (prompt,), edited=True)
    marked = {} if is_apart else mark_messages(request, prefix, at_end=True)
    said = [marked.get(at, message) for at, message in enumerate(prefix.messages)]
    elements = map(encode_message, (*said, asked))
    if request.breaks_past and is_bound(request, prefix):
        elements = map(drop_thinking, elements)
    members["messages"] = msgspec.Raw(b"[" + b",".join(elements) + b"]")
    if request.cache.key and CACHE_KEY not in question.refused:
        members.setdefault(CACHE_KEY, msgspec.Raw(orjson.dumps(request.cache.key)))
    own = {"model": question.model} if is_apart else {}
    return msgspec.json.encode({**members, **own, **_write(question, read_thinking(members))})


def _write(question: Question, thinking_tokens: int | None) -> dict[str, Any]:
    return write_parameters(question, LIMITS, thinking_tokens=thinking_tokens, has_options=True)


def read_completion(answer: bytes) -> Completion:
    """The completion in the response to a question, streamed or not. Raises UndecodableError."""
    try:
        events = read_events(answer)
        decoded = msgspec.json.decode(answer, type=_Completion) if events is None else _join(events)
    except DECODE_ERRORS as error:
        raise UndecodableError(type(error).__name__) from error
    usage: Usage | None = None
    with suppress(*DECODE_ERRORS):
        usage = read_usage(decoded.usage)
    choice = decoded.choices[0] if decoded.choices else _Choice()
    return Completion(
        _read_text(choice.message),
        usage or Usage(),
        calls_tool=bool(choice.message.tool_calls),
        was_cut=choice.finish_reason == "length",
        was_filtered=choice.finish_reason == "content_filter",
    )


def _read_text(said: _Content) -> str:
    content = said.content
    return content if isinstance(content, str) else "".join(part.text or "" for part in content or ())


def _join(events: list[bytes]) -> _Completion:
    """The first choice of a stream as one completion. Raises UndecodableError for an error, or without an answer."""
    chunks = [msgspec.json.decode(data, type=_Chunk) for data in events]
    if any(chunk.error != _NULL for chunk in chunks) or not any(chunk.choices for chunk in chunks):
        message = "no completion in the stream"
        raise UndecodableError(message)
    pieces = [piece for chunk in chunks for piece in chunk.choices or () if piece.index == 0]
    calls = [call for piece in pieces for call in piece.delta.tool_calls or ()]
    text = "".join(_read_text(piece.delta) for piece in pieces)
    finish = next((piece.finish_reason for piece in reversed(pieces) if piece.finish_reason), None)
    usage = next((chunk.usage for chunk in reversed(chunks) if chunk.usage != _NULL), _NULL)
    return _Completion([_Choice(_Content(text, calls), finish)], usage)
