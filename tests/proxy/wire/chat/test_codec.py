"""The dialects of chat completions and of Messages stay in their folders."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimtab.proxy.wire.messages.codec import COUNT_TOKENS, MESSAGES

ROOT = Path(__file__).parents[4]
OF_THE_DIALECT = ("proxy/wire/", "proxy/cli/demo")
"""The dialect's own folder; the demo is a server that speaks it."""
WIRE_NAMES = frozenset(
    {
        "messages", "choices", "content", "tool_calls", "tool_call_id", "function_call", "functions", "tools",
        "tool_choice", "response_format", "max_tokens", "max_completion_tokens", "finish_reason", "delta",
        "reasoning_content", "refusal", "chat.completion", "chat.completion.chunk",
    }
)  # fmt: skip
"""Names of members in a chat completion's request and answer."""
MESSAGES_NAMES = frozenset(
    {
        "tool_use", "tool_result", "tool_use_id", "redacted_thinking", "input_schema", "stop_reason",
        "content_block_delta", "message_start", "message_delta", "partial_json", "x-anthropic-billing-header",
        "output_format", "max_tokens_to_sample", "server_tool_use",
    }
)  # fmt: skip
"""Names that only the dialect of Messages has."""
_PATH = re.compile(r"chat/completions")
ALLOWED = {
    ("proxy/config/schema.py", "chat/completions"): "paths that a user need not name, and that our own pages keep off",
    ("proxy/config/schema.py", "messages"): "the name of a dialect",
    ("proxy/config/validation.py", "tools"): "a key of the configuration",
    ("proxy/config/values.py", "chat/completions"): "an address that users paste into the configuration",
    ("proxy/config/policy.py", "messages"): "the name of a dialect",
    ("proxy/models/tokenizer.py", "messages"): "what a server's template is asked for",
    ("proxy/models/tokenizer.py", "content"): "the same",
    ("proxy/summaries/summariser.py", "max_tokens"): "the refused name by which a model that thinks is known",
    ("proxy/cli/serving/agents.py", "chat/completions"): "the end of an address in an agent's settings",
    ("proxy/cli/evaluate/rehearsal.py", "response_format"): "the file that a user has recorded is a request of it",
    ("proxy/cli/evaluate/rehearsal.py", "tool_choice"): "the same",
    ("proxy/cli/evaluate/rehearsal.py", "function_call"): "the same",
    ("proxy/server/admin/api.py", "choices"): "what a reader of the dashboard may choose from",
    ("rules/summary/handoff.py", "refusal"): "why a text is no note",
    ("rules/results/excerpt/kinds.py", "content"): "a common name of a tool's argument",
    ("rules/summary/carried/files.py", "content"): "the same",
    ("rules/summary/carried/items.py", "content"): "the same: where the words of a task stand",
    ("rules/summary/carried/list_calls.py", "content"): "the same: where a list stands as text",
    ("proxy/telemetry/spans.py", "messages"): "the name of a dialect",
    ("proxy/account/outcome.py", "messages"): "a figure of our own: how many messages the client sent",
    ("proxy/account/outcome.py", "max_tokens"): "a figure of our own: the limit that a request sets",
    ("proxy/account/previous_request.py", "messages"): "a field of our own: how many messages the previous request had",
    ("proxy/exchange/tell.py", "max_tokens"): "the same figure",
    ("proxy/exchange/for_caller.py", "content"): "a contract of LiteLLM's, which has messages in this form only",
    ("proxy/recall/tool.py", "tool_choice"): "all dialects have it under this name",
    ("proxy/exchange/for_caller.py", "messages"): "what a caller sends is known by it; and a figure of our own",
    ("proxy/exchange/attempt.py", "refusal"): "a field of our own: what the upstream refused",
    ("proxy/exchange/tell.py", "messages"): "a field of our own event: how many messages the client sent",
    ("proxy/server/admin/shapes.py", "messages"): "the same field",
    ("proxy/cli/records/inspect.py", "messages"): "a word of our own table",
    ("proxy/cli/bodies.py", "messages"): "what to do about a body that cannot be read, in a message",
    ("proxy/cli/records/inputs.py", "function_call"): "a file of requests of any dialect",
}
"""What may be named elsewhere, and why."""
ALLOWED_OF_MESSAGES = {
    ("proxy/wire/tools.py", "tool_use_id"): "servers that speak chat send blocks of this dialect",
    ("proxy/wire/chat/codec.py", "message_start"): "the same: with an event of this dialect in a stream of chat",
    ("proxy/wire/chat/message.py", "tool_use"): "the same: calls in a content are not read, and their results stay",
    ("proxy/wire/tools.py", "tool_use"): "the same: its input is the model's and loads no tool",
}


def _find_texts(path: Path) -> Iterator[str]:
    """The string constants of a module without docstrings, and the fields of its wire structures."""
    tree = ast.parse(path.read_text())
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in said:
            if isinstance(node.value, str | bytes):
                yield node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        elif isinstance(node, ast.ClassDef) and any("Struct" in ast.unparse(base) for base in node.bases):
            yield from (ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign))


def _find_names(path: Path, names: frozenset[str]) -> Iterator[str]:
    for text in _find_texts(path):
        if text.strip("\"'") in names:
            yield text.strip("\"'")
        yield from _PATH.findall(text) if names is WIRE_NAMES else ()


@pytest.mark.parametrize(
    ("names", "own", "allowed"),
    [(WIRE_NAMES, OF_THE_DIALECT, ALLOWED), (MESSAGES_NAMES, "proxy/wire/messages/", ALLOWED_OF_MESSAGES)],
    ids=["chat", "messages"],
)
def test_no_file_outside_the_dialect_names_its_fields(names, own, allowed) -> None:
    """Rules and proxy get everything about a request through the codec, under its own names."""
    modules = [path for package in ("proxy", "rules") for path in sorted((ROOT / package).rglob("*.py"))]
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in modules
        if not path.relative_to(ROOT).as_posix().startswith(own)
        for name in _find_names(path, names)
    }
    assert found == set(allowed)


@pytest.mark.parametrize(("folder", "names"), [("chat", WIRE_NAMES), ("messages", MESSAGES_NAMES)])
def test_the_dialect_itself_is_found_out(folder: str, names: frozenset[str]) -> None:
    """The test above can fail: in its own folder most of its names are found."""
    modules = (ROOT / "proxy" / "wire" / folder).glob("*.py")
    found = {name for path in modules for name in _find_names(path, names)}
    assert len(found) > len(names) / 2


def test_counting_has_a_path_of_its_own() -> None:
    assert (MESSAGES.ending, MESSAGES.is_count) == ("/messages", False)
    assert (COUNT_TOKENS.ending, COUNT_TOKENS.is_count) == ("/messages/count_tokens", True)
