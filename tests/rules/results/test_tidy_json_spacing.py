"""JSON re-spaced as text."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.results.tidy import MAX_DEPTH, MAX_JSON_CHARS, MIN_JSON_CHARS, respace_json, shorten_json

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
    """The tokens of a JSON text without the blanks between them. Read character by character, for comparison."""
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
    """Every string, number, key and escape stays exactly; duplicate keys and their order do, too."""
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


@given(
    depth=st.integers(MAX_DEPTH - 2, MAX_DEPTH + 2),
    is_object=st.booleans(),
    siblings=st.lists(st.sampled_from(['"},{"', '"],["', '"[[[["', '"\\\\"', '[{"a":{}},{"b":[]}]']), max_size=60),
)
def test_it_may_be_so_deep_and_no_deeper(depth: int, siblings: list[str], *, is_object: bool) -> None:
    """Whatever else the text contains, also brackets in strings. Siblings add no depth."""
    field = '"a":' if is_object else ""
    opening, closing = ("{", "}") if is_object else ("[", "]")
    beside = "".join(f',"b":{sibling}' if is_object else f",{sibling}" for sibling in siblings)
    text = (
        f"{opening}{field}" * (depth - 1)
        + f"{opening}{field}1{closing}"
        + f"{closing}" * (depth - 2)
        + beside
        + closing
    )
    assert (respace_json(text) is not None) == (depth <= MAX_DEPTH)


BODY = (
    '{\n  "name": "one: two,  three",\n  "sizes": [1.0, 2, 3e4],\n  "more": "to make it long enough to be worth it"\n}'
)
COMPACT = '{"name":"one: two,  three","sizes":[1.0,2,3e4],"more":"to make it long enough to be worth it"}'


def test_white_space_around_it_stays() -> None:
    text = f"\n  {BODY}\n"
    assert shorten_json(text, spaces=True, tables=True) == f"\n  {COMPACT}\n"
    assert shorten_json(text, spaces=False, tables=False) is None
    assert shorten_json(text, spaces=False, tables=True) is None
    assert shorten_json(COMPACT, spaces=True, tables=True) is None


@pytest.mark.parametrize(
    "text",
    [
        "plain text, however long it may be, and with {braces} or [brackets] in it, at that",
        "OBSERVATION:\n" + BODY,
        BODY + "\n[exit code 0]",
        '{"a": 1}\n{"a": 2}\n{"a": 3}\n{"a": 4}\n{"a": 5}\n{"a": 6}\n{"a": 7}\n{"a": 8}\n',
        "[12:00:01] started the server and waits\n[12:00:02] and waits still, with nothing to do]",
    ],
    ids=lambda text: text[:20],
)
def test_other_texts_stay(text: str) -> None:
    """JSON lines, for example, are compact already."""
    assert shorten_json(text, spaces=True, tables=True) is None


def test_only_texts_of_some_length_are_read_as_json() -> None:
    """Shorter ones have little to save, longer ones would not fit any budget."""
    lengths = (MIN_JSON_CHARS - 1, MIN_JSON_CHARS, MAX_JSON_CHARS, MAX_JSON_CHARS + 1)
    shorter = [shorten_json(f"[{' ' * (chars - 2)}]", spaces=True, tables=True) for chars in lengths]
    assert shorter == [None, "[]", "[]", None]


@given(text=JSON)
def test_it_decodes_to_the_same(text: str) -> None:
    """For a decoder that keeps numbers as they are written."""
    compact = respace_json(text)
    assert compact is not None
    if "E+400" not in text:
        assert msgspec.json.decode(compact) == msgspec.json.decode(text)
