"""Gemini's generateContent, as clients and servers write it, and what a server checks of a request."""

from collections.abc import Iterator
from typing import Any

import orjson
from support.dialects.spoken.dialect import Dialect, Refusal, Wire, join_parts, list_texts, read_sse, write_sse
from support.gemini.codec import GEMINI

PATH = GEMINI.path


def _convert(session: Wire) -> Wire:
    systems = [message for message in session["messages"] if message["role"] == "system"]
    body: Wire = {"contents": _write_contents(session["messages"])}
    if systems:
        body["systemInstruction"] = {"parts": [{"text": text} for one in systems for text in list_texts(one)]}
    if session.get("tools"):
        body["tools"] = [{"functionDeclarations": [tool["function"] for tool in session["tools"]]}]
    return body


def _write_contents(messages: list[Wire]) -> list[Wire]:
    names = {call["id"]: call["function"]["name"] for one in messages for call in one.get("tool_calls") or ()}
    contents: list[Wire] = []
    for message in messages:
        role, parts = ("model" if message["role"] == "assistant" else "user"), list(_write_parts(message))
        for call in message.get("tool_calls") or ():
            args = orjson.loads(call["function"]["arguments"] or "{}")
            parts.append({"functionCall": {"id": call["id"], "name": call["function"]["name"], "args": args}})
        if message["role"] == "tool":
            told = {"id": message["tool_call_id"], "name": names.get(message["tool_call_id"], "unknown")}
            parts = [{"functionResponse": {**told, "response": {"output": "\n\n".join(list_texts(message))}}}]
        if message["role"] != "system" and parts:
            if contents and contents[-1]["role"] == role == "user":
                contents[-1]["parts"] += parts
            else:
                contents.append({"role": role, "parts": parts})
    return contents


def _write_parts(message: Wire) -> Iterator[Wire]:
    content = message.get("content") or ""
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        if part["type"] == "image_url":
            kind, _, data = part["image_url"]["url"].removeprefix("data:").partition(";base64,")
            yield {"inlineData": {"mimeType": kind, "data": data}}
        elif part["text"]:
            yield {"text": part["text"]}


def _read(body: Wire) -> list[Wire]:
    messages = [{"role": "system", "content": join_parts(_read_parts(body["systemInstruction"]["parts"]))}] if (
        "systemInstruction" in body
    ) else []  # fmt: skip
    for content in body["contents"]:
        parts = content["parts"]
        for told in (part["functionResponse"] for part in parts if "functionResponse" in part):
            text = next(iter(told["response"].values()))
            messages.append({"role": "tool", "tool_call_id": told["id"], "content": text})
        calls = [_read_call(part["functionCall"]) for part in parts if "functionCall" in part]
        said = list(_read_parts(parts))
        if said or calls:
            role = "assistant" if content["role"] == "model" else "user"
            messages.append({"role": role, "content": join_parts(said), **({"tool_calls": calls} if calls else {})})
    return messages


def _read_call(call: Wire) -> Wire:
    function = {"name": call["name"], "arguments": orjson.dumps(call["args"]).decode()}
    return {"id": call["id"], "type": "function", "function": function}


def _read_parts(parts: list[Wire]) -> Iterator[Wire]:
    for part in parts:
        if "inlineData" in part:
            inline = part["inlineData"]
            yield {"type": "image_url", "image_url": {"url": f"data:{inline['mimeType']};base64,{inline['data']}"}}
        elif "text" in part and not part.get("thought"):
            yield {"type": "text", "text": part["text"]}


def _make_answer(text: str, **usage: int) -> Wire:
    candidate = {"index": 0, "content": {"role": "model", "parts": [{"text": text}]}}
    answer: Wire = {"candidates": [candidate], "modelVersion": "fake-model"}
    if usage:
        spent = {"promptTokenCount": usage["prompt_tokens"], "candidatesTokenCount": usage["completion_tokens"]}
        answer["usageMetadata"] = spent
    return answer


def _write_answer(text: str, **usage: int) -> bytes:
    answer = _make_answer(text, **usage)
    answer["candidates"][0]["finishReason"] = "STOP"
    return orjson.dumps(answer)


def _write_event(text: str) -> bytes:
    return write_sse(_make_answer(text, prompt_tokens=11, completion_tokens=1), named=False)


def _write_events(*texts: str) -> list[bytes]:
    last = orjson.loads(_write_answer("", prompt_tokens=11, completion_tokens=3))
    return [*map(_write_event, texts), write_sse(last, named=False)]


def _read_text(answer: bytes, *, is_stream: bool) -> str:
    told = read_sse(answer) if is_stream else [orjson.loads(answer)]
    return "".join(part["text"] for one in told for part in one["candidates"][0]["content"]["parts"])


def _refuse(tokens: int, window: int) -> bytes:
    message = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window})."
    return orjson.dumps({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}})


def _refuse_in_stream(tokens: int, window: int) -> bytes:
    return write_sse(orjson.loads(_refuse(tokens, window)), named=False)


def check_request(_original: bytes, sent: bytes, *, last_may_shrink: bool = False) -> list[str]:
    """Roles, and each call with its result in the next content. Source: Google's guide on function calling."""
    problems: list[str] = []
    contents, waiting = orjson.loads(sent)["contents"], list[Any]()
    if not contents or contents[0]["role"] != "user":
        problems.append("the first content is not the user's")
    for at, content in enumerate(contents):
        parts = content["parts"]
        results = [part["functionResponse"].get("id") for part in parts if "functionResponse" in part]
        if not parts or content["role"] not in {"user", "model"}:
            problems.append(f"{at}: no parts, or an unknown role")
        if sorted(results) != sorted(waiting):
            problems.append(f"{at}: results {results} for calls {waiting}")
        waiting = [part["functionCall"].get("id") for part in parts if "functionCall" in part]
    return problems + ([f"no results for {waiting}"] if waiting else [])


SPOKEN = Dialect(
    name="gemini",
    path=PATH,
    transcript="contents",
    completion_limit="maxOutputTokens",
    convert=_convert,
    read=_read,
    write_answer=_write_answer,
    write_event=_write_event,
    write_events=_write_events,
    read_text=_read_text,
    own_type=lambda _: "INTERNAL",
    refusals=(Refusal("google", _refuse), Refusal("google, in a stream", _refuse_in_stream, 200, is_stream=True)),
    check_request=check_request,
    own_codec=GEMINI,
)
