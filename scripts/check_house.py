"""Checks the size limits of the source: entries in a folder, lines in a file and a function, floors of imports.

A level is a folder with the modules and sub-packages in it. Its floors are the longest chain of imports among them, in
which each one imports the next. import-linter checks the order of the floors; this script counts them. `__main__.py`
only starts the program, so it counts neither as an entry nor as a floor.

Usage: python scripts/check_house.py [ROOT]
Prints each problem to standard error. The exit status is 1 if there is any.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

PACKAGES = ("proxy", "rules")
MAX_ENTRIES = 20
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 40
MAX_FLOORS = 8
NOT_COUNTED = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}


def find_mistakes(root: Path) -> Iterator[str]:
    """Find every folder, file, function and chain of imports that is over a limit."""
    for package in PACKAGES:
        yield from check_sizes(root / package, root)
    sys.path.insert(0, str(root.resolve() / "src"))
    graph = grimp.build_graph("trimtab", cache_dir=None)
    for package in sorted(module for module in graph.modules if graph.find_children(module)):
        yield from check_floors(package, find_imports(graph, package))


def check_sizes(package: Path, root: Path) -> Iterator[str]:
    """Find every folder, file and function of the package that is over a limit."""
    for path in (package, *sorted(package.rglob("*"))):
        name = path.relative_to(root)
        if path.is_dir() and path.name not in NOT_COUNTED:
            yield from _check_folder(path, name)
        elif path.suffix == ".py":
            yield from _check_file(path, name)


def _check_folder(folder: Path, name: Path) -> Iterator[str]:
    entries = [entry for entry in folder.iterdir() if entry.name not in NOT_COUNTED]
    if len(entries) > MAX_ENTRIES:
        yield f"{name}: {len(entries)} entries; at most {MAX_ENTRIES} in a folder"


def _check_file(path: Path, name: Path) -> Iterator[str]:
    text = path.read_text("utf-8")
    lines = len(text.splitlines())
    if lines > MAX_FILE_LINES:
        yield f"{name}: {lines} lines; at most {MAX_FILE_LINES} in a file"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{name}:{node.lineno}: {node.name} has {lines} lines; at most {MAX_FUNCTION_LINES} in a function"


def check_floors(package: str, imports: Mapping[str, set[str]]) -> Iterator[str]:
    """Report imports that form a cycle, or too many floors, among the parts of one package."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        yield f"{package}: imports in a cycle: {' -> '.join(reversed(error.args[1]))}"
        return
    chain = _find_longest_chain(imports)
    if len(chain) > MAX_FLOORS:
        yield f"{package}: {len(chain)} floors, at most {MAX_FLOORS} on a level: {' -> '.join(chain)}"


def find_imports(graph: grimp.ImportGraph, package: str) -> dict[str, set[str]]:
    """Map each part of the package to the other parts that it, or any module in it, imports."""
    rooms = {room for room in graph.find_children(package) if not room.endswith(".__main__")}
    room_of = {module: room for room in rooms for module in (room, *graph.find_descendants(room))}
    imports: dict[str, set[str]] = {room: set() for room in rooms}
    for module, room in room_of.items():
        found = {room_of.get(imported) for imported in graph.find_modules_directly_imported_by(module)}
        imports[room] |= {other for other in found if other not in (None, room)}
    return imports


def _find_longest_chain(imports: Mapping[str, set[str]]) -> list[str]:
    @cache
    def chain_from(room: str) -> tuple[str, ...]:
        return (room.rpartition(".")[2], *max((chain_from(below) for below in imports[room]), key=len, default=()))

    return list(max((chain_from(room) for room in imports), key=len))


if __name__ == "__main__":
    mistakes = list(find_mistakes(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
    sys.stderr.writelines(f"check_house: {mistake}\n" for mistake in mistakes)
    sys.exit(bool(mistakes))
