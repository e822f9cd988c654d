"""Tool results without what nobody reads."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.policy import Tidying
from trimtab.rules.results.tidy import make_tables, tidy_text
from trimtab.rules.text.markers import TABLE

ALL = Tidying()
PARTS = (
    "\x1b", "\x1b[31m", "\x1b[2K", "\x1b]8;;a\x1b\\", "\x9b1m", "\x9d0;t\x07", "\b", "\r", "\n", "\n\n\n", " ", "\t",
    "12%", " 3/10", "Reading", "...", "12:30:01 ", "\ud800", "文", "{", "}", "[", "]", '"a"', ":", ",", "1", "\\",
    '{"a": 1, "b": [1, 2]}', "@@ -1 +1 @@\n", "|", "#",
)  # fmt: skip
RUNS = st.builds(lambda part, times: part * times, st.sampled_from(PARTS) | st.text(max_size=4), st.integers(1, 12))
TEXTS = st.lists(RUNS, max_size=24).map("".join)
SWITCHES = st.builds(Tidying, *[st.booleans()] * 4)


def tidy(text: str, tidying: Tidying = ALL, *, is_file: bool = False, room: int = 10**9) -> str:
    return tidy_text(text, tidying, is_file=lambda: is_file, fits=lambda short: len(short) <= room)


@given(text=TEXTS, tidying=SWITCHES, is_file=st.booleans(), room=st.integers(0, 200))
def test_never_longer_and_settled(text: str, tidying: Tidying, *, is_file: bool, room: int) -> None:
    """For any text and switches: no longer than before, and a second pass changes nothing."""
    tidied = tidy(text, tidying, is_file=is_file, room=room)
    assert len(tidied) <= len(text)
    assert tidy(tidied, tidying, is_file=is_file, room=room) is tidied
    assert tidied != text or tidied is text


def test_what_may_be_copied_keeps_its_form() -> None:
    """A diff, and JSON that is a file. Nothing becomes empty: some upstreams refuse that."""
    diff = "--- a\n+++ b\n@@ -1,3 +1,2 @@\n-one  \r\n+one\r\n \n\n\n\n-copied 5%\rcopied 9%\n"
    assert tidy(diff) is diff
    assert tidy(diff.replace("\n-", "\n\x1b[31m-")) == diff
    data = '{\n  "a": 1,\n  "b": [\n    0,\n    0,\n    0\n  ],\n  "c": "spread over lines, as a formatter wrote it"\n}'
    assert tidy(data, is_file=True) is data
    assert tidy(f"\x1b[32m{data}\x1b[0m", is_file=True) == data
    assert len(tidy(data)) < len(data)
    for part in ["\x1b[0m", " ", "\n", "\r   \r", "\x1b[2K\r", "\t\n", ""]:
        for text in (part * 300, part * 20_000):
            assert tidy(text) is text
            assert tidy(text, is_file=True) is text


@pytest.mark.parametrize("colour", ["\x1b[1m", ""])
def test_fits_is_asked_once(colour: str) -> None:
    """Counting tokens is slow: once for a JSON text, never if nothing can be saved."""
    asked: list[str] = []

    def fits(text: str) -> bool:
        asked.append(text)
        return False

    records = [{"name": f"record {number}", "size": number} for number in range(30)]
    text = msgspec.json.format(msgspec.json.encode(records)).decode()
    assert tidy_text(colour + text, ALL, is_file=lambda: False, fits=fits) == text
    assert len(asked) == 1
    assert len(asked[0]) < len(text) / 2
    for nothing_to_gain in ("plain text " * 30, "[1,2,3,4]" * 30, '{"a":"' + "b " * 80 + '"}'):
        tidy_text(nothing_to_gain, ALL, is_file=lambda: False, fits=fits)
    assert len(asked) == 1


@pytest.mark.parametrize(
    "part",
    ["\r", "ab\r", "\x1b[", "\x1b]", "[", '{"a":', '"', "\t\n", "12 34 ", "1" * 999 + "\r", "@@ -", "\ud800"],
    ids=lambda part: repr(part[:8]),
)
def test_hostile_texts_are_survived(part: str) -> None:
    """One line or a hundred thousand: never longer, and a second pass changes nothing."""
    hostile = "a" * 50_000 + part * (100_000 // len(part)) + "\x1b[m"
    tidied = tidy(hostile)
    assert len(tidied) <= len(hostile)
    assert tidy(tidied) == tidied


KEYS = st.sampled_from(["id", "name", "%s", "a b", "é", "columns", "rows", "\\n", "\\u0061"])
CELLS = st.sampled_from(
    ["1", "1.0", "-0.0", "1e999", "null", '""', '"a,b"', '"[{\\"a\\":1}]"', '"\\u0041"', "[]", "{}", '"%b"']
)


def write_objects(keys: list[str], rows: list[list[str]]) -> str:
    objects = (",".join(f'"{key}":{cell}' for key, cell in zip(keys, row, strict=False)) for row in rows)
    return "[" + ",".join(f"{{{fields}}}" for fields in objects) + "]"


def nest(cells: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    keys = st.lists(KEYS, min_size=1, max_size=4)
    rows = st.lists(st.lists(cells, min_size=4, max_size=4), max_size=8)
    objects = st.builds(write_objects, keys, rows)
    return (
        objects
        | st.lists(cells, max_size=3).map(lambda items: f"[{','.join(items)}]")
        | objects.map('{{"x":{}}}'.format)
    )


JSON = st.recursive(CELLS, nest, max_leaves=40)


def restore_tables(text: str) -> str:
    """The text with every table written as the array of objects that it replaces."""
    if TABLE not in text:
        return text
    raw = msgspec.json.decode(text, type=msgspec.Raw)
    return _restore(bytes(raw)).decode()


def _restore(value: bytes) -> bytes:
    if value.startswith(b"["):
        items = msgspec.json.decode(value, type=list[msgspec.Raw])
        return b"[" + b",".join(_restore(bytes(item)) for item in items) + b"]"
    if not value.startswith(b"{") or TABLE.encode() not in value:
        return value
    fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    if list(fields) != [f"{TABLE} columns", "rows"]:
        parts = (msgspec.json.encode(key) + b":" + _restore(bytes(field)) for key, field in fields.items())
        return b"{" + b",".join(parts) + b"}"
    names = [bytes(name) for name in msgspec.json.decode(fields[f"{TABLE} columns"], type=list[msgspec.Raw])]
    rows = msgspec.json.decode(fields["rows"], type=list[list[msgspec.Raw]])
    pairs = (
        b",".join(name + b":" + _restore(bytes(cell)) for name, cell in zip(names, row, strict=True)) for row in rows
    )
    return b"[" + b",".join(b"{" + fields + b"}" for fields in pairs) + b"]"


@given(text=JSON)
def test_tables_can_be_taken_back(text: str) -> None:
    """The original is restored exactly. A table is JSON and shorter; otherwise there is none."""
    table = make_tables(text)
    assert restore_tables(table) == text
    assert table == text or len(table) < len(text)
    assert msgspec.json.decode(table, type=msgspec.Raw)
    assert make_tables(table) == table


def test_keys_stand_once() -> None:
    """Also of arrays in fields, in cells and in other arrays, to some depth."""
    text = write_objects(["id", "name", "price"], [[str(row), f'"item {row}"', f"{row}.50"] for row in range(4)])
    assert make_tables(text) == (
        '{"[trimtab: table] columns":["id","name","price"],'
        '"rows":[[0,"item 0",0.50],[1,"item 1",1.50],[2,"item 2",2.50],[3,"item 3",3.50]]}'
    )
    inner = write_objects(["origin", "destination"], [['"LAX"', '"PHX"']] * 5)
    table = make_tables(inner)
    assert table.startswith('{"[trimtab: table]')
    assert make_tables(f'{{"a":{inner},"b":[{inner},1]}}') == f'{{"a":{table},"b":[{table},1]}}'
    outer = write_objects(["reservation_number", "flights"], [["1", inner], ["2", inner], *[["3", "[]"]] * 9])
    assert make_tables(outer).count("columns") == 3
    assert restore_tables(make_tables(outer)) == outer
    inner = write_objects(["number", "name"], [["1", "2"]] * 9)
    deep = '{"a":' * 40 + inner + "}" * 40
    assert make_tables(deep) == deep
    shallow = '{"a":' * 10 + inner + "}" * 10
    assert restore_tables(make_tables(shallow)) == shallow != make_tables(shallow)


def test_unlike_objects_stay() -> None:
    """Different keys, another order, a double or escaped key, too few, nothing to save, what looks like a table."""
    same = '{"number":1,"description":"a"},'
    for odd in (
        '{"description":"a","number":1}', '{"number":1}', '{"number":1,"description":"a","x":1}', "1", "[]", "null",
        '{"number":1,"description":"a","number":2}', '{"number":1,"d\\u0065scription":"a"}',
    ):  # fmt: skip
        text = f"[{same * 9}{odd}]"
        assert make_tables(text) == text
    for few in (f"[{same}{same[:-1]}]", "[{},{},{},{}]", write_objects(["a"], [['"' + "b" * 200 + '"']] * 5)):
        assert make_tables(few) == few
    text = '{"a":"[trimtab: table]","b":' + write_objects(["number", "name"], [["1", "2"]] * 9) + "}"
    assert make_tables(text) is text
