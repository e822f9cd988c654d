"""The dialect of chat completions stays in its folder."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[4]
OF_THE_DIALECT = ("proxy/wire/", "proxy/cli/demo/")
"""The dialect's own folder; the demo is a server that speaks it."""
WIRE_NAMES = frozenset(
    {
        "messages", "choices", "content", "tool_calls", "tool_call_id", "function_call", "functions", "tools",
        "tool_choice", "response_format", "max_tokens", "max_completion_tokens", "finish_reason", "delta",
        "reasoning_content", "refusal", "chat.completion", "chat.completion.chunk",
    }
)  # fmt: skip
"""Names of members in a chat completion's request and answer."""
_PATH = re.compile(r"chat/completions")
ALLOWED = {
    ("proxy/config/schema.py", "chat/completions"): "paths that a user need not name, and that our own pages keep off",
    ("proxy/config/schema.py", "messages"): "the name of a dialect",
    ("proxy/config/assembly/validation.py", "tools"): "a key of the configuration",
    ("proxy/config/values.py", "chat/completions"): "an address that users paste into the configuration",
    ("proxy/config/policies/sections.py", "messages"): "the name of a dialect",
    ("proxy/models/tokenizer.py", "messages"): "what a server's template is asked for",
    ("proxy/models/tokenizer.py", "content"): "the same",
    ("proxy/summaries/summariser.py", "max_tokens"): "the refused name by which a model that thinks is known",
    ("proxy/cli/serving/agents.py", "chat/completions"): "the end of an address in an agent's settings",
    ("proxy/cli/evaluate/rehearsal.py", "response_format"): "the file that a user has recorded is a request of it",
    ("proxy/cli/evaluate/rehearsal.py", "tool_choice"): "the same",
    ("proxy/cli/evaluate/rehearsal.py", "function_call"): "the same",
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
    ("proxy/server/admin/dashboard/shapes.py", "messages"): "the same field",
    ("proxy/cli/records/showing.py", "messages"): "a word of our own table",
    ("proxy/cli/options.py", "messages"): "what to do about a body that cannot be read, in a message",
    ("proxy/cli/records/inputs.py", "function_call"): "a file of requests of any dialect",
}
"""What may be named elsewhere, and why."""


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


def _find_names(path: Path) -> Iterator[str]:
    for text in _find_texts(path):
        if text.strip("\"'") in WIRE_NAMES:
            yield text.strip("\"'")
        yield from _PATH.findall(text)


def test_no_file_outside_the_dialect_names_its_fields() -> None:
    """Rules and proxy get everything about a chat completion through the codec, under its own names."""
    modules = [path for package in ("proxy", "rules") for path in sorted((ROOT / package).rglob("*.py"))]
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in modules
        if not path.relative_to(ROOT).as_posix().startswith(OF_THE_DIALECT)
        for name in _find_names(path)
    }
    assert found == set(ALLOWED)


def test_the_dialect_itself_is_found_out() -> None:
    """The test above can fail: in its own folder all of its names are found."""
    modules = (ROOT / "proxy" / "wire" / "chat").glob("*.py")
    found = {name for path in modules for name in _find_names(path)}
    assert found >= {name for name in WIRE_NAMES if not name.startswith("chat.")}
