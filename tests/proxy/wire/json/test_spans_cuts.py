"""Items go out of JSON, each with one comma, and nothing else changes."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.wire.json.spans import Span, cut, find_cuts, find_members, match_array, splice

ITEMS = st.lists(st.sampled_from(["1", '"a,b"', '{"x":[1,2]}', "[]", "null"]), max_size=7)
BLANKS = st.sampled_from(["", " ", "\n  "])


@given(ITEMS, BLANKS, BLANKS, st.data())
def test_what_is_left_of_a_list_are_the_other_items(items: list[str], before: str, after: str, data) -> None:
    """The result is the JSON of exactly the items that stay, whatever stands around the commas."""
    text = f"[{before}{f'{before},{after}'.join(items)}{after}]".encode()
    gone = sorted(data.draw(st.sets(st.integers(0, max(len(items) - 1, 0)), max_size=len(items)))) if items else []
    array = match_array(text, 0, [item.encode() for item in items])
    assert array is not None
    left = cut(text, array.elements, gone)

    assert orjson.loads(left) == [orjson.loads(item) for at, item in enumerate(items) if at not in gone]
    removed = sum(len(items[at]) for at in gone)
    commas = max(len(items) - 1, 0) - max(len(items) - len(gone) - 1, 0)
    assert len(left) == len(text) - removed - commas


@given(st.permutations(["a", "b", "c", "d"]), st.sets(st.sampled_from("abcd")), BLANKS)
def test_what_is_left_of_an_object_are_the_other_members(keys: list[str], gone: set[str], blank: str) -> None:
    """Members go like items."""
    text = (
        "{" + blank + f"{blank},".join(f'"{key}"{blank}:{blank}[{at},{{}}]' for at, key in enumerate(keys)) + "}"
    ).encode()
    members = find_members(text, [])
    assert [key.decode().strip('"') for key, _, _ in members] == keys
    spans = [span for _, span, _ in members]
    left = cut(text, spans, [at for at, key in enumerate(keys) if key in gone])

    assert orjson.loads(left) == {key: value for key, value in orjson.loads(text).items() if key not in gone}


def test_nothing_to_take_out_leaves_the_text() -> None:
    """No range is replaced."""
    assert splice(b"[1,2]", []) == b"[1,2]"
    assert list(find_cuts(b"[1,2]", [Span(1, 2), Span(3, 4)], [])) == []


def test_known_values_are_found_without_a_search() -> None:
    """A value that is known, and one whose position is, end where they end."""
    body = b'{"tools":[{"a":"]"}],"messages":["x"],"n":1}'
    plain = find_members(body, [])
    assert find_members(body, [b'[{"a":"]"}]']) == plain == find_members(body, [], Span(31, 36))
    assert [body[value.start : value.stop] for _, _, value in plain] == [b'[{"a":"]"}]', b'["x"]', b"1"]
