"""Whether a result says that its call failed."""

from dataclasses import replace

from support.builders import result

from trimtab.rules.results.calls import SHORT_CHARS, tells_failure, was_refused

REFUSED = [
    "Error: InputValidationError: TodoWrite failed due to the following issue",
    "<tool_use_error>InputValidationError: no</tool_use_error>",
    "The user doesn't want to proceed with this tool use. The tool use was rejected",
    "[Request interrupted by user for tool use]",
    "Permission to use Bash has been denied.",
]
FAILED = [
    "Error: no",
    '{"error": "no"}',
    '{"error": {"code": 3}}',
    "Traceback (most recent call last):\n  x",
    "Failed to write a.py",
    "Invalid arguments: todos",
    "String to replace not found in file.",
    "EACCES: permission denied, open '/etc/x'",
    "No replacement was performed, old_str did not appear",
    "ValueError: no",
    "MCP error -32602: no",
    "exit code: 1",
]
WELL = [
    "", "ok", '{"error": null, "ok": true}', '{"error": ""}', '{"errors": []}', "Errors are told below.",
    "Failed logins are counted.", "# Error: how to", "The user does it.", "Todos have been modified successfully",
]  # fmt: skip


def test_a_short_result_that_begins_like_an_error_is_a_failure() -> None:
    """A refused call was not carried out. A long text was read."""
    for text in [*REFUSED, *FAILED]:
        assert tells_failure(result("1", text))
        assert tells_failure(result("1", f"\n {text}"))
        assert was_refused(result("1", text)) == (text in REFUSED)
    for text in WELL:
        assert not tells_failure(result("1", text))
        assert not was_refused(result("1", text))
        assert tells_failure(replace(result("1", text), is_error=True))
    assert not tells_failure(result("1", "Error: no\n" + "x\n" * SHORT_CHARS))
