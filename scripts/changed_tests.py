"""Prints the tests of what differs from a revision: the mirrored tests of changed modules, and changed test files.

A change of what all tests stand on selects them all; a change of what the tests of one folder share selects that
folder. Laws in `tests/rules/laws` and other tests across modules run only with `tests/run`.

Usage: python scripts/changed_tests.py [REVISION], without: main
Prints a path on each line; nothing if no test belongs to the changes.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

SHARED = ("conftest.py", "data", "programs", "support", "upstreams")
ALL_STAND_ON = ("pyproject.toml", *(f"tests/{name}" for name in SHARED))
PAGES = ("docs", "README.md", "CHANGELOG.md", "config.example.yaml", "scripts/site")


def choose(changed: Iterable[str], root: Path) -> list[str]:
    """The test files and folders that belong to these changed files, deleted ones among them."""
    names = list(map(PurePath, changed))
    if any(_is_in(name, ALL_STAND_ON) and not _is_test(name) for name in names):
        return ["tests"]
    found = {path.relative_to(root) for name in names for path in _find_tests(name, root)}
    return sorted(str(path) for path in found if not found.intersection(path.parents))


def _find_tests(name: PurePath, root: Path) -> Iterator[Path]:
    top, *rest = name.parts
    if _is_in(name, PAGES):
        yield root / "tests" / "docs"
    elif top == "tests" and _is_test(name):
        yield from filter(Path.exists, [root / name])
    elif top == "tests" and len(rest) > 1:
        yield _find_folder(root / name.parent)
    elif top == "scripts":
        yield root / "tests" / "scripts"
    elif top in {"proxy", "rules", "bench"} and rest:
        yield from _find_mirrored(name, root)


def _find_mirrored(module: PurePath, root: Path) -> Iterator[Path]:
    """The module's own test files, else the folder of its neighbours' tests."""
    folder = root / "tests" / module.parent
    stem = module.stem.strip("_")
    own = [path for path in folder.glob("test_*.py") if f"{path.stem}_".startswith(f"test_{stem}_")]
    yield from own or [_find_folder(folder)]


def _find_folder(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if any(path.glob("**/test_*.py")))


def _is_in(name: PurePath, places: Iterable[str]) -> bool:
    return any(PurePath(place) in (name, *name.parents) for place in places)


def _is_test(name: PurePath) -> bool:
    return name.name.startswith("test_") and name.suffix == ".py"


def _ask_git(*arguments: str) -> list[str]:
    told = subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout  # noqa: S603, S607
    return told.splitlines()


def _list_changed(revision: str) -> list[str]:
    """What differs from where this work left the revision: committed, uncommitted and new files."""
    (base,) = _ask_git("merge-base", revision, "HEAD")
    new = _ask_git("ls-files", "--others", "--exclude-standard")
    return _ask_git("diff", "--name-only", "--no-renames", base) + new


if __name__ == "__main__":
    revision = sys.argv[1] if len(sys.argv) > 1 else "main"
    sys.stdout.writelines(f"{path}\n" for path in choose(_list_changed(revision), Path()))
