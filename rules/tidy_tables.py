"""Arrays of like objects as tables: the keys once, then the values as rows.

Law: the table is JSON and holds every value as its text was; `[{"a":1,"b":2},...]` becomes
`{"[trimtab: table] columns":["a","b"],"rows":[[1,2],...]}`. Whoever puts the columns back before the values of each row
has the original's text again. A text that holds TABLE_MARK itself is never given a table, so no table is ambiguous.
"""

import msgspec

TABLE_MARK = "[trimtab: table]"
MIN_ROWS = 3
MIN_SHARE_SAVED = 0.1
"""Of the array's characters: below this a table is harder to read for nothing."""
MAX_DEPTH = 16
"""Of the values that hold a table. What lies deeper stays; each level is read once more."""

_LIKELY = b'[{"'
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_OBJECTS = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def make_tables(compact: str) -> str:
    """A JSON text without blanks between its values, with tables for arrays of like objects where they are shorter."""
    if TABLE_MARK in compact or compact.count("},{") < MIN_ROWS - 1:
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
        items = [bytes(item) for item in _ARRAY.decode(value)]
        return b"[" + b",".join(_tabulate(item, depth + 1) for item in items) + b"]"
    keys = list(objects[0])
    names = [msgspec.json.encode(key) for key in keys]
    if len(objects) < MIN_ROWS or not keys or any(list(item) != keys for item in objects):
        items = [bytes(item) for item in _ARRAY.decode(value)]
        return b"[" + b",".join(_tabulate(item, depth + 1) for item in items) + b"]"
    rows = [[bytes(cell) for cell in item.values()] for item in objects]
    if _write_objects(names, rows) != value:
        return value
    if value.count(_LIKELY) > 1:
        rows = [[_tabulate(cell, depth + 1) for cell in row] for row in rows]
    plain = _write_objects(names, rows)
    table = _write_table(names, rows)
    return table if len(table) <= len(plain) * (1 - MIN_SHARE_SAVED) else plain


def _tabulate_object(value: bytes, depth: int) -> bytes:
    fields = [(msgspec.json.encode(key), bytes(field)) for key, field in _OBJECT.decode(value).items()]
    if b"{" + b",".join(name + b":" + field for name, field in fields) + b"}" != value:
        return value  # a key stands there twice, or is escaped: not to be written again
    return b"{" + b",".join(name + b":" + _tabulate(field, depth + 1) for name, field in fields) + b"}"


def _write_objects(names: list[bytes], rows: list[list[bytes]]) -> bytes:
    prefixes = [b"," + name + b":" for name in names]
    prefixes[0] = prefixes[0][1:]
    parts = [b"".join(part for pair in zip(prefixes, row, strict=True) for part in pair) for row in rows]
    return b"[{" + b"},{".join(parts) + b"}]"


def _write_table(names: list[bytes], rows: list[list[bytes]]) -> bytes:
    cells = b"],[".join(b",".join(row) for row in rows)
    return b'{"' + TABLE_MARK.encode() + b' columns":[' + b",".join(names) + b'],"rows":[[' + cells + b"]]}"
