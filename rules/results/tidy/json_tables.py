"""Arrays of objects with equal keys as tables: the keys once, then the values as rows.

`[{"a":1,"b":2},...]` becomes `{"[trimtab: table] columns":["a","b"],"rows":[[1,2],...]}`.

Law: the table is JSON and keeps the text of every value. Writing the columns before the values of each row gives the
original text again. A text that contains the marker itself never gets a table, so no table is ambiguous.
"""

import msgspec

from rules.text.markers import TABLE

MIN_ROWS = 3  # chosen: two objects repeat each key only once, which hardly pays for the table's marker
MIN_SHARE_SAVED = 0.1
"""Share of an array's characters that its table must save. Chosen: for less, a table is not worth being harder to
read."""
MAX_DEPTH = 16
"""Deepest nesting at which tables are made. Chosen: each level reads its values once more, so it bounds the time."""

_LIKELY = b'[{"'
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_OBJECTS = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def make_tables(compact: str) -> str:
    """A JSON text with tables for arrays of objects with equal keys, if these are shorter.

    `compact` has no white space between its values.
    """
    if TABLE in compact or compact.count("},{") < MIN_ROWS - 1:
        return compact
    return _tabulate(compact.encode(), 0).decode()


def _tabulate(value: bytes, depth: int) -> bytes:
    if depth > MAX_DEPTH or _LIKELY not in value:
        return value
    if value.startswith(b"{"):
        return _tabulate_object(value, depth)
    try:
        objects = _OBJECTS.decode(value)
    except msgspec.ValidationError:
        return _tabulate_items(value, depth)
    keys = list(objects[0])
    names = [msgspec.json.encode(key) for key in keys]
    if len(objects) < MIN_ROWS or not keys or any(list(item) != keys for item in objects):
        return _tabulate_items(value, depth)
    rows = [tuple(map(bytes, item.values())) for item in objects]
    if _write_objects(names, rows) != value:
        return value  # a key is escaped or occurs twice in an object: the original could not be written again
    plain = value
    if value.count(_LIKELY) > 1:
        rows = [tuple(_tabulate(cell, depth + 1) if _LIKELY in cell else cell for cell in row) for row in rows]
        plain = _write_objects(names, rows)
    table = _write_table(names, rows)
    return table if len(table) <= len(plain) * (1 - MIN_SHARE_SAVED) else plain


def _tabulate_items(value: bytes, depth: int) -> bytes:
    items = map(bytes, _ARRAY.decode(value))
    return b"[" + b",".join([_tabulate(item, depth + 1) if _LIKELY in item else item for item in items]) + b"]"


def _tabulate_object(value: bytes, depth: int) -> bytes:
    fields = [(msgspec.json.encode(key), bytes(field)) for key, field in _OBJECT.decode(value).items()]
    if b"{" + b",".join([name + b":" + field for name, field in fields]) + b"}" != value:
        return value
    return b"{" + b",".join([name + b":" + _tabulate(field, depth + 1) for name, field in fields]) + b"}"


def _write_objects(names: list[bytes], rows: list[tuple[bytes, ...]]) -> bytes:
    form = b",".join(name.replace(b"%", b"%%") + b":%b" for name in names)
    return b"[{" + b"},{".join(map(form.__mod__, rows)) + b"}]"


def _write_table(names: list[bytes], rows: list[tuple[bytes, ...]]) -> bytes:
    cells = b"],[".join(map(b",".join, rows))
    return b'{"' + TABLE.encode() + b' columns":[' + b",".join(names) + b'],"rows":[[' + cells + b"]]}"
