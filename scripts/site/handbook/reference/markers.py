"""docs/reference/markers.md: every text that trimtab writes for models, from rules/text/markers.py.

The functions of that module write the texts, with sample values. Its docstrings are the explanations.
"""

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from handbook.tables import plain
from rules.text import markers

INTRODUCTION = """\
# Markers

This page lists every text that trimtab writes into a request in place of something that it removed.

Models read these texts. Each one says what is missing and, if the reader can do something, how to see it. A tool or a
user can write such a text, too: it stays unchanged and has no effect on trimtab. The texts below have sample values.
"""
SECTIONS: dict[str, tuple[str, ...]] = {
    "Tool results": ("mark_middle", "mark_gap", "mark_next_gap", "mark_same", "mark_near", "mark_pruned", "NO_RESULT"),
    "Tool results in JSON": (
        *("TABLE", "mark_characters", "mark_items", "mark_more_items", "mark_records"),
        *("name_member", "mark_members", "mark_member_records"),
    ),
    "Images": ("mark_image",),
    "Summaries": (),
    "Quotations in a summary": (
        *("QUOTE_START", "QUOTE_END", "TASK_LIST_TITLE", "FILE_SUFFIX", "NAMES_TITLE", "ECHOES_TITLE"),
    ),
}
REST = "Summaries"
"""This section gets the names that no other section lists."""
SAMPLES: dict[str, tuple[Any, ...]] = {
    "as_shown": (False,),
    "assistants": (40,),
    "back": (2,),
    "chars": (900,),
    "diff": ("@@ -3 +3 @@\n-    return 1\n+    return 2",),
    "facts": ("image/png 1280x800", "182 kB", "login.png"),
    "has_unverified": (True,),
    "how": (getattr(markers, "READ_LINES", "narrow the command, or read it in parts"),),
    "lines": (120,),
    "missing": (12,),
    "requests": (3,),
    "size": (2000,),
    "source": ('read_file {"path":"src/port.py"}',),
    "steps": (40,),
    "text": ("{}",),
    "tokens": (2000,),
    "total": (40,),
    "unit": ("tokens",),
    "users": (3,),
    "what": ("120 lines",),
}
"""Values by the name of the parameter. A variadic parameter may have several."""
NO_TEXT = {"ASK_PART", "MEMBER", "POINTER", "READ_LINES", "READ_PART", "START", "strip_markers", "tells_omission"}
"""Names of the module that are only parts of texts, or that recognise texts."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A text that models read, with its explanation."""

    name: str
    text: str
    meaning: str


def write() -> str:
    """The page."""
    entries = {entry.name: entry for entry in list_entries()}
    rest = [name for name in entries if not any(name in names for names in SECTIONS.values())]
    parts = [INTRODUCTION]
    for title, names in (SECTIONS | {REST: tuple(rest)}).items():
        parts += [f"## {title}\n", *(_write_entry(entries[name]) for name in names if name in entries)]
    return "\n".join(parts)


def _write_entry(entry: Entry) -> str:
    return f"```text\n{entry.text}\n```\n\n{plain(entry.meaning)}\n"


def list_entries() -> Iterator[Entry]:
    """List each public text, and each function that writes one, in the module's order."""
    for name, meaning in _read_explanations(inspect.getsource(markers)).items():
        value = getattr(markers, name)
        if name not in NO_TEXT:
            yield Entry(name, value if isinstance(value, str) else _call(value), meaning)


def _call(function: Callable[..., str]) -> str:
    positional: list[Any] = []
    named = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in SAMPLES:
            message = f"{function.__name__}: add a sample for `{name}` to scripts/site/handbook/reference/markers.py"
            raise KeyError(message)
        if parameter.kind is parameter.KEYWORD_ONLY:
            (named[name],) = SAMPLES[name]
        else:
            positional += SAMPLES[name]
    return function(*positional, **named)


def _read_explanations(source: str) -> dict[str, str]:
    """Map each public name of a module to its docstring; empty if it has none."""
    found: dict[str, str] = {}
    last = ""
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.FunctionDef(name=name):
                last = name
                found[name] = _flow(ast.get_docstring(node) or "") if isinstance(node, ast.FunctionDef) else ""
            case ast.Expr(value=ast.Constant(value=str(text))) if last:
                found[last] = _flow(text)
            case _:
                last = ""
    return {name: text for name, text in found.items() if not name.startswith("_")}


def _flow(text: str) -> str:
    """A docstring with the lines of each paragraph joined."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))
