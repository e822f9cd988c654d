"""JSON re-spaced as text."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.results.tidy.json_spacing import MAX_JSON_CHARS, find_json, respace_json, shorten_json

SCALARS = st.sampled_from(
    ["1", "-0", "1.0", "1e5", "1E+400", "0.1000000000000000055", "123456789012345678901234567890", "true", "null"]
)
STRINGS = st.builds(
    lambda parts: '"' + "".join(parts) + '"',
    st.lists(
        st.sampled_from(
            ["a", " ", "  ", ",", ":", ": ", "[", "}", "{", "\\\\", '\\"', "\\n", "\\u00e9", "\\/", "é", "文"]
        )
    ),
)
BLANK = st.sampled_from(["", " ", "\n", "  \t", "\r\n    "])


def nest(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    array = st.lists(st.tuples(BLANK, inner, BLANK).map("".join), max_size=4).map(lambda items: f"[{','.join(items)}]")
    field = st.tuples(BLANK, STRINGS, BLANK, st.just(":"), BLANK, inner, BLANK).map("".join)
    return array | st.lists(field, max_size=4).map(lambda fields: f"{{{','.join(fields)}}}")


JSON = st.recursive(SCALARS | STRINGS, nest, max_leaves=20)


def tokens(text: str) -> list[str]:
    """The JSON text's tokens, blanks between them left out: read a character at a time, for comparison."""
    found: list[str] = []
    inside = escaped = False
    for char in text:
        if inside:
            found[-1] += char
            inside = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            found.append(char)
            inside = True
        elif char not in " \t\r\n":
            found.append(char)
    return found


@given(text=JSON)
def test_only_blanks_between_values_go(text: str) -> None:
    """Every string, number, key and escape stays to the letter, duplicate keys and their order too."""
    compact = respace_json(text)
    assert compact is not None
    assert compact == "".join(tokens(text))
    assert respace_json(compact) == compact


@pytest.mark.parametrize(
    "text",
    [
        "{'a': 1}", "{a: 1}", "[1, 2,]", "[NaN]", "[1] [2]", '{"a": 1} // so', "[True, None]", "[01]",
        '["\ud800"]', '["a\nb"]',
        "[" * 100_000, '["\\x"]', "", "[1", "[1]\x0c",
    ],
    ids=lambda text: repr(text[:12]),
)  # fmt: skip
def test_what_is_not_json_to_the_letter_is_left(text: str) -> None:
    assert respace_json(text) is None


BODY = (
    '{\n  "name": "one: two,  three",\n  "sizes": [1.0, 2, 3e4],\n  "more": "to make it long enough to be worth it"\n}'
)
COMPACT = '{"name":"one: two,  three","sizes":[1.0,2,3e4],"more":"to make it long enough to be worth it"}'


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("", ""),
        ("\n  ", "\n"),
        ("<returncode>0</returncode>\n<output>\n", "\n</output>"),
        ("OBSERVATION:\n", "\n"),
        ("HTTP/1.1 200 OK\ncontent-type: application/json\n\n", ""),
        (
            "[INFO] reading\n[1/2] done\n",
            "\n[Python Interpreter: python3]\nroot@host:/app # \n[Command finished with exit code 0]",
        ),
    ],
)
def test_json_behind_and_before_a_few_lines_is_found(before: str, behind: str) -> None:
    """What a tool writes around it stays as it was."""
    text = before + BODY + behind
    body = find_json(text)
    assert body
    assert (text[: body.start], text[body.stop :]) == (before, behind)
    assert shorten_json(body, spaces=True, tables=True) == COMPACT
    assert shorten_json(body, spaces=False, tables=False) is None
    assert shorten_json(body, spaces=False, tables=True) is None


def test_what_was_written_is_not_read_again() -> None:
    """A body in its last form is known; it stays as it is."""
    body = find_json(f"OBSERVATION:\n{COMPACT}\n", {COMPACT})
    assert body
    assert body.compact is None
    assert shorten_json(body, spaces=True, tables=True) is None


@pytest.mark.parametrize(
    "text",
    [
        "plain text, however long it may be, and with {braces} or [brackets] in it, at that",
        "x" * 600 + "\n" + BODY,
        BODY + "\n" + "x" * 600,
        '{"a": 1}\n{"a": 2}\n{"a": 3}\n{"a": 4}\n{"a": 5}\n{"a": 6}\n{"a": 7}\n{"a": 8}\n',
        "[12:00:01] started the server and waits\n[12:00:02] and waits still, with nothing to do]",
        '{"short": 1}',
    ],
    ids=lambda text: text[:20],
)
def test_other_texts_hold_no_json_body(text: str) -> None:
    """JSON lines neither: they are compact already, and are looked for line by line."""
    assert find_json(text) is None


def test_a_very_long_body_is_known_but_left() -> None:
    """It would not fit; that it is JSON, nobody needs to check."""
    text = "[" + '{"a": "b"}, ' * (MAX_JSON_CHARS // 12) + '{"a": "b"}]'
    body = find_json(text)
    assert body is not None
    assert body.compact is None
    assert shorten_json(body, spaces=True, tables=True) is None


def test_a_very_long_log_is_not_taken_for_json() -> None:
    """Though it begins and ends in brackets."""
    for begin in ("[1/20] Building", "[1, 2]", "{}", '["\ud800", '):
        assert find_json(f"{begin} demo\n" + "[2/20] Building more\n" * (MAX_JSON_CHARS // 20) + "[done]") is None


@given(text=JSON)
def test_it_decodes_to_the_same(text: str) -> None:
    """To whoever reads numbers as they are written."""
    compact = respace_json(text)
    assert compact is not None
    if "E+400" not in text:
        assert msgspec.json.decode(compact) == msgspec.json.decode(text)
