"""What the tests read of a request, for each dialect that clients speak."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from support import checker
from support.dialects import messages_checker, responses_checker

Wire = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """check: all problems of a forwarded body, given the client's. read_results: the texts of the tool results."""

    check: Callable[[bytes, bytes], list[str]]
    read_results: Callable[[Wire], Iterator[str]]


def read_tools(body: Wire) -> list[Wire]:
    """The tools that a request offers. In Responses they may be an item of the input, and in namespaces."""
    items = body["input"] if isinstance(body.get("input"), list) else []
    listed = [*(body.get("tools") or ())]
    listed += (tool for item in items if item.get("type") == "additional_tools" for tool in item["tools"])
    return [inner for tool in listed for inner in tool.get("tools", (tool,))]


def _read_chat(body: Wire) -> Iterator[str]:
    yield from ("".join(checker.texts_of(message)) for message in body["messages"] if message["role"] == "tool")


def _read_responses(body: Wire) -> Iterator[str]:
    outputs = (item["output"] for item in body["input"] if item.get("type", "").endswith("_output"))
    yield from ("".join(checker.texts_of({"content": output})) for output in outputs)


def _read_messages(body: Wire) -> Iterator[str]:
    blocks = (block for message in body["messages"] if message["role"] == "user" for block in message["content"])
    results = (block for block in blocks if isinstance(block, dict) and block["type"] == "tool_result")
    yield from ("".join(checker.texts_of(result)) for result in results)


DIALECTS = {
    "chat": Dialect(checker.check_request, _read_chat),
    "responses": Dialect(responses_checker.check_request, _read_responses),
    "messages": Dialect(messages_checker.check_request, _read_messages),
}
