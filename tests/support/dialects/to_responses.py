"""Converts a recorded chat session to the body of a Responses request, as a client without stored responses sends it.

Law: all content is kept, and the items of a transcript are the beginning of the items of a longer one.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from support.dialects.oddities import NotConvertibleError, Paired, pair, parts_of, split_leading
from support.dialects.seals import seal

Wire = dict[str, Any]


def to_responses(session: Wire, *, model: str = "recorded", with_reasoning: bool = False) -> Wire:
    """The body for all messages of a session, with its tools. NotConvertibleError: see `oddities`.

    Leading system messages become `instructions`. `with_reasoning`: each response begins with encrypted reasoning.
    """
    leading, rest = split_leading(session["messages"])
    body: Wire = {"model": model}
    if leading:
        body["instructions"] = "\n\n".join(part["text"] for message in leading for part in parts_of(message))
    body["input"] = list(convert(rest, with_reasoning=with_reasoning))
    if session.get("tools"):
        body["tools"] = [{"type": "function", **tool["function"], "strict": False} for tool in session["tools"]]
    body["store"] = False
    if with_reasoning:
        body["include"] = ["reasoning.encrypted_content"]
    return body


def convert(messages: Sequence[Wire], *, with_reasoning: bool = False) -> Iterator[Wire]:
    """The items of the messages, in order."""
    for index, paired in enumerate(pair(messages)):
        role = paired.message["role"]
        if role == "assistant":
            said = list(_convert_assistant(index, paired))
            if said and with_reasoning:
                yield make_reasoning(f"{index}")
            yield from said
        elif role == "tool":
            yield _convert_result(paired)
        else:
            content = [_convert_part(part) for part in parts_of(paired.message)]
            yield {"type": "message", "role": role, "content": content}


def make_reasoning(name: str) -> Wire:
    """A reasoning item that only the provider can read."""
    return {
        "type": "reasoning",
        "id": f"rs_{name}",
        "summary": [],
        "encrypted_content": seal(f"reasoning {name}", 1200),
    }


def _convert_assistant(index: int, paired: Paired) -> Iterator[Wire]:
    texts = [{"type": "output_text", "text": part["text"], "annotations": []} for part in parts_of(paired.message)]
    if texts:
        said = {"type": "message", "id": f"msg_{index}", "role": "assistant", "status": "completed"}
        yield {**said, "content": texts}
    for call, key in zip(paired.message.get("tool_calls") or (), paired.ids, strict=True):
        asked = {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        yield {"type": "function_call", "id": f"fc_{key}", "call_id": key, **asked, "status": "completed"}


def _convert_result(paired: Paired) -> Wire:
    content = paired.message.get("content") or ""
    output = content if isinstance(content, str) else [_convert_part(part) for part in parts_of(paired.message)]
    return {"type": "function_call_output", "call_id": paired.ids[0], "output": output}


def _convert_part(part: Wire) -> Wire:
    if part.get("type") == "text":
        return {"type": "input_text", "text": part["text"]}
    if part.get("type") == "image_url":
        return {"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"}
    why = f"a part of the kind {part.get('type')!r}"
    raise NotConvertibleError(why)
