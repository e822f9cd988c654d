"""docs/reference/logs.md lists every log event, with its level and its fields."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from support.reference_pages import ROOT, find_code, read_literal, read_page, read_rows, read_section

from trimtab.proxy.account.outcome import FIGURES
from trimtab.proxy.account.recorder import WAIT_SECONDS
from trimtab.proxy.exchange.arrival import MAX_CHARS
from trimtab.proxy.telemetry.logs import FORMATS, LEVELS, SHORT_ID_CHARS

PAGE = "logs.md"
OTHER_SECTIONS = (
    "Other events of requests", "Start and stop", "Reload", "Workers", "Counting", "Models", "Summaries", "Stores",
)  # fmt: skip
MORE_FIELDS = {
    "listening": {"workers"},
    "worker_died": {"status", "signal"},
    "worker_cannot_start": {"status", "signal"},
}
"""Fields that the code passes as a mapping, so that the syntax tree does not show their names."""


@dataclass
class Event:
    """The levels and fields of an event in the source, over all calls."""

    levels: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)


def _find_levels(call: ast.expr, names: dict[str, set[str]]) -> set[str]:
    """The levels of a logging call: of a logger's method, of a choice between two, or of a variable that holds one."""
    if isinstance(call, ast.IfExp):
        return _find_levels(call.body, names) | _find_levels(call.orelse, names)
    if isinstance(call, ast.Name):
        return names.get(call.id, set())
    is_log = isinstance(call, ast.Attribute) and ast.unparse(call.value).removesuffix("()").endswith("log")
    return {call.attr} & set(LEVELS) if isinstance(call, ast.Attribute) and is_log else set()


def _find_calls(tree: ast.Module) -> Iterator[tuple[str, set[str], set[str]]]:
    """Each event that is logged with a literal name, with its levels and its fields."""
    names: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = _find_levels(node.value, {})
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and (event := read_literal(node.args[0])):
            levels = _find_levels(node.func, names)
            if levels:
                yield event, levels, {keyword.arg for keyword in node.keywords if keyword.arg is not None}


@cache
def _find_events() -> dict[str, Event]:
    events: dict[str, Event] = defaultdict(Event)
    for path in (ROOT / "proxy").rglob("*.py"):
        for name, levels, fields in _find_calls(ast.parse(path.read_text("utf-8"))):
            events[name].levels |= levels
            events[name].fields |= fields | MORE_FIELDS.get(name, set())
    return events


def _find_request_fields() -> set[str]:
    """The fields that figures declare, and the keys of the dictionaries for the log line of a request."""
    files = ("proxy/account/outcome.py", "proxy/telemetry/ledger.py")
    nodes = [node for file in files for node in ast.walk(ast.parse((ROOT / file).read_text("utf-8")))]
    named = {"write_line", "_write_prompt", "describe"}
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name in named]
    keys: list[ast.expr | None] = []
    for node in (node for function in functions for node in ast.walk(function)):
        keys += node.keys if isinstance(node, ast.Dict) else [node.slice] if isinstance(node, ast.Subscript) else []
    declared = {name for name, shown in FIGURES.items() if shown.in_log}
    return declared | {literal for literal in map(read_literal, keys) if literal is not None}


def test_the_page_has_every_event_with_its_level_and_fields() -> None:
    rows = [row for section in OTHER_SECTIONS for row in read_rows(read_section(PAGE, section))]
    on_page = {row[0].strip("`"): (set(row[1].split(" or ")), set(find_code(row[2]))) for row in rows}
    in_code = {name: (event.levels, event.fields) for name, event in _find_events().items() if name != "request"}

    assert len(rows) == len(on_page)
    assert on_page == in_code


def test_the_page_has_every_field_of_the_request_event() -> None:
    section = read_section(PAGE, "The request event")
    rows = {row[0].strip("`"): row for row in read_rows(section)}
    nested = {
        "decisions": {"rule", "attempt", "before_tokens", "after_tokens", "saved_tokens", "first_changed"},
        "sections": {"original", "sent"},
        "summary": {"id", "kind", "messages", "instead"},
    }

    assert set(rows).union(*nested.values()) == _find_request_fields()
    assert all(names <= set(find_code(rows[field][1])) for field, names in nested.items())
    assert _find_events()["request"].levels == {"info", "warning"}


def test_levels_formats_and_bounds_are_those_of_the_code() -> None:
    rows = read_rows(read_section(PAGE, "Level and format"))

    assert [tuple(find_code(row[3])) for row in rows] == [LEVELS, FORMATS]
    assert WAIT_SECONDS == 50 / 1000
    assert "up to 50 ms" in read_section(PAGE, "Level and format")
    assert f"cut to {MAX_CHARS} characters" in read_section(PAGE, "What is changed before it is logged")
    assert f"the first {SHORT_ID_CHARS} characters" in read_page(PAGE)
