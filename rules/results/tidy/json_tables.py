"""Arrays of like objects as tables: the keys once, then the values as rows.

Law: the table is JSON and holds every value as its text was; `[{"a":1,"b":2},...]` becomes
`{"[trimtab: table] columns":["a","b"],"rows":[[1,2],...]}`. Whoever puts the columns back before the values of each row
has the original's text again. A text that holds that marker itself is never given a table, so no table is ambiguous.
"""

import msgspec

from rules.text.markers import TABLE

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
        return value  # a key is escaped, or stands there twice: not to be written again
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
