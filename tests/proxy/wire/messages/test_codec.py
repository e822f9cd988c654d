"""The dialect of Messages stays in its folder, and implements the protocol."""

import ast
from collections.abc import Iterator
from pathlib import Path

from trimtab.proxy.wire.messages.codec import COUNT_TOKENS, MESSAGES

ROOT = Path(__file__).parents[4]
WIRE_NAMES = frozenset(
    {
        "tool_use", "tool_result", "tool_use_id", "redacted_thinking", "input_schema", "stop_reason",
        "content_block_delta", "message_start", "message_delta", "partial_json", "x-anthropic-billing-header",
        "output_format", "max_tokens_to_sample", "server_tool_use",
    }
)  # fmt: skip
"""Names that only this dialect has."""
ALLOWED = {
    (
        "proxy/wire/content/tool_lists.py",
        "tool_use_id",
    ): "servers that speak chat send blocks of this dialect in a content",
    ("proxy/wire/chat/answer.py", "message_start"): "the same: with an event of this dialect in a stream of chat",
    ("proxy/wire/chat/message.py", "tool_use"): "the same: calls in a content are not read, and their results stay",
    ("proxy/wire/content/tool_lists.py", "tool_use"): "the same: its input is the model's and loads no tool",
}
"""What may be named elsewhere, and why."""


def _find_names(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in said and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            yield from (name for name in WIRE_NAMES if text.strip("\"'") == name)
        elif isinstance(node, ast.ClassDef) and any("Struct" in ast.unparse(base) for base in node.bases):
            yield from (
                name
                for one in node.body
                if isinstance(one, ast.AnnAssign) and (name := ast.unparse(one.target)) in WIRE_NAMES
            )


def _find(folder: Path, *, outside: bool) -> set[tuple[str, str]]:
    own = ROOT / "proxy" / "wire" / "messages"
    files = [path for path in sorted(folder.rglob("*.py")) if path.is_relative_to(own) is not outside]
    return {(path.relative_to(ROOT).as_posix(), name) for path in files for name in _find_names(path)}


def test_no_file_outside_the_dialect_names_its_fields() -> None:
    assert _find(ROOT / "proxy", outside=True) | _find(ROOT / "rules", outside=True) == set(ALLOWED)


def test_the_dialect_itself_is_found_out() -> None:
    """The test above can fail."""
    assert len(_find(ROOT / "proxy" / "wire" / "messages", outside=False)) > 5


def test_counting_has_a_path_of_its_own() -> None:
    assert (MESSAGES.ending, MESSAGES.is_count) == ("/messages", False)
    assert (COUNT_TOKENS.ending, COUNT_TOKENS.is_count) == ("/messages/count_tokens", True)
