"""Chat completions, as clients and servers write them."""

import orjson
from support import checker
from support.dialects.spoken.dialect import Dialect, Refusal, Wire, read_sse, write_sse

_OPENAI = "This model's maximum context length is {1} tokens. However, your messages resulted in {0} tokens."
_VLLM = (
    "This model's maximum context length is {1} tokens. However, you requested {0} tokens in the messages, "
    "Please reduce the length of the messages."
)
_LLAMA = "request ({0} tokens) exceeds the available context size ({1} tokens), try increasing it"


def _convert(session: Wire) -> Wire:
    return session


def _read(body: Wire) -> list[Wire]:
    messages: list[Wire] = body["messages"]
    return messages


def _write_answer(text: str, **usage: int) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "fake-model", "choices": [choice]}
    if usage:
        answer["usage"] = usage
    return orjson.dumps(answer)


def _write_event(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "fake-model"}
    return write_sse({**chunk, "choices": [choice]}, named=False)


def _write_events(*texts: str) -> list[bytes]:
    return [*map(_write_event, texts), b"data: [DONE]\n\n"]


def _read_text(answer: bytes, *, is_stream: bool) -> str:
    if not is_stream:
        return str(orjson.loads(answer)["choices"][0]["message"]["content"])
    deltas = [choice["delta"] for event in read_sse(answer) for choice in event["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


def _own_type(_code: str) -> str:
    return "trimtab_error"


def _refuse_as_openai(tokens: int, window: int) -> bytes:
    message = _OPENAI.format(tokens, window)
    said = {"type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
    return orjson.dumps({"error": {"message": message, **said}})


def _refuse_flatly(tokens: int, window: int) -> bytes:
    said = {"object": "error", "type": "BadRequestError", "param": None, "code": 400}
    return orjson.dumps({**said, "message": _VLLM.format(tokens, window)})


def refuse_as_llama(tokens: int, window: int) -> bytes:
    """The error of llama.cpp's server, which has the same form in all dialects."""
    said = {"type": "exceed_context_size_error", "n_prompt_tokens": tokens, "n_ctx": window}
    return orjson.dumps({"error": {"code": 400, "message": _LLAMA.format(tokens, window), **said}})


def _refuse_in_stream(tokens: int, window: int) -> bytes:
    return b": wait\n\ndata: " + _refuse_as_openai(tokens, window) + b"\n\n"


def _end_at_window(_tokens: int, _window: int) -> bytes:
    choice = {"index": 0, "message": {"content": ""}, "finish_reason": "model_context_window_exceeded"}
    return orjson.dumps({"choices": [choice]})


CHAT = Dialect(
    name="chat",
    path="/v1/chat/completions",
    transcript="messages",
    completion_limit="max_tokens",
    convert=_convert,
    read=_read,
    write_answer=_write_answer,
    write_event=_write_event,
    write_events=_write_events,
    read_text=_read_text,
    own_type=_own_type,
    refusals=(
        Refusal("openai", _refuse_as_openai),
        Refusal("vllm", _refuse_flatly),
        Refusal("llama.cpp", refuse_as_llama),
        Refusal("openai, in a stream", _refuse_in_stream, 200, is_stream=True),
        Refusal("z.ai", _end_at_window, 200, told=False),
    ),
    check_request=checker.check_request,
)
