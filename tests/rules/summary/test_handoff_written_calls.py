"""Tool calls written as text: a model's own call syntax, and text that counts as a call only at the end."""

from trimtab.rules.summary.handoff import FENCE, GOES_ON, ends_in_call, has_any_call, has_call_syntax

SYNTAX = [
    "<tool_call>", "<function=run>", "<invoke name", "<|python_tag|>", "<|channel|>commentary", "[TOOL_CALLS] [",
    "<｜tool▁calls▁begin｜>", "   <tool_code>",
]  # fmt: skip
LIKE_DATA = [
    '{"name": "run", "arguments": {"path": "a"}}',
    '[{"tool": "run", "input": {}}]',
    "<read_file>\n<path>a</path>\n</read_file>",
    "Action: run\nAction Input: a",
    '[run(path="a")]',
]
PLAIN = [
    '{"name": "Ada", "age": 7}',
    '{"name": "run", "parameters": {"type": "object"}}',
    "<div><b>x</b></div>",
    "[see above]",
    "The tool_call was made.",
]


def unfence(lines: list[str]) -> list[str]:
    """The lines, with those in fences made empty."""
    inside, left = False, []
    for line in lines:
        is_mark = FENCE.match(line) is not None
        left.append("" if inside or is_mark else line)
        inside ^= is_mark
    return left


def ends(text: str) -> bool:
    lines = text.split("\n")
    return ends_in_call(lines, unfence(lines), GOES_ON)


def test_a_models_own_syntax_is_a_call_wherever_a_line_begins_with_it() -> None:
    """Or behind a text, unless it is quoted."""
    for call in SYNTAX:
        assert has_call_syntax(f"Some words.\n{call}\nmore words")
        assert not has_call_syntax(f"The form `{call}` was seen")
    for call in ['<tool_call>{"name": "run"', "<tool_call> <function=run>", "<|channel|>commentary"]:
        assert has_call_syntax(f"I look. {call}")
        assert not has_call_syntax(f"I look. '{call}'")


def test_what_may_be_data_is_a_call_at_the_end() -> None:
    """Not before other text, nor after a line that announces data without saying what is done next."""
    for call in LIKE_DATA:
        assert ends(f"Some words.\n\n{call}\n")
        assert not ends(f"{call}\n\nThat is what the file holds.")
        assert not ends(f"The answer was:\n\n{call}")
        assert not ends(f"## Exact data\n\n{call}")
        assert ends(f"Now I'll run it:\n\n{call}")
    for text in PLAIN:
        assert not ends(f"Some words.\n\n{text}")
        assert not has_any_call(text.split("\n"), text)
    for fenced, is_call in [
        ("```json\n%s\n```", True),
        ("~~~\n%s\n~~~\n\n", True),
        ("```json\n%s\n```\nThat is all.", False),
        ("%s", True),
    ]:
        assert ends("Words.\n\n" + fenced % LIKE_DATA[0]) is is_call
        assert not ends("Words.\n\n" + fenced % PLAIN[0])
