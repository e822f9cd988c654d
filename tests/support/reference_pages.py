"""Reads the pages of docs/reference, and the same facts from the source."""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference"
_CODE = re.compile(r"`([^`\n]+)`")

T = TypeVar("T")


def read_page(name: str) -> str:
    """The whole text of a page."""
    return (PAGES / name).read_text("utf-8")


def read_section(name: str, title: str) -> str:
    """The text below a `##` heading of a page."""
    parts = re.split(r"^## (.+)$", read_page(name), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[title]


def read_rows(text: str) -> list[list[str]]:
    """The cells of every table row in a text, without heading rows and separator lines."""
    lines = text.splitlines()
    heads = {index - 1 for index, line in enumerate(lines) if re.match(r"\|[-| ]+\|$", line)}
    rows = [line for index, line in enumerate(lines) if line.startswith("|") and not heads & {index, index - 1}]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def find_code(text: str) -> list[str]:
    """The code spans of a text."""
    return _CODE.findall(text)


@cache
def list_nodes(package: str) -> list[ast.AST]:
    """The nodes of the syntax trees of a package's source."""
    files = sorted((ROOT / package).rglob("*.py"))
    return [node for path in files for node in ast.walk(ast.parse(path.read_text("utf-8")))]


def find_all(packages: tuple[str, ...], find: Callable[[ast.AST], T | None]) -> Iterator[T]:
    """The results of `find` for each node of the packages' source, without None."""
    for package in packages:
        found = map(find, list_nodes(package))
        yield from (item for item in found if item is not None)


def read_literal(node: ast.AST | None) -> str | None:
    """The value of a string literal; None for any other node."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
