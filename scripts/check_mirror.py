"""Checks that tests mirror the source: a module of 60 lines or more has its own test file, each test file its module.

The tests of `proxy/http/relay.py` are in `tests/proxy/http/test_relay.py`. They may be split by topic into
`test_relay_<aspect>.py`. A package's `__init__.py` needs a test file only if it has code other than imports.

Usage: python scripts/check_mirror.py [ROOT]
Prints each problem to standard error. The exit status is 1 if there is any.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("proxy", "rules")
MIN_LINES = 60
"""Shorter modules are tested with what uses them; they may have a test file of their own."""

WITHOUT_TEST_FILE: dict[str, str] = {}
"""Modules without their own test file, each with the reason."""

WITHOUT_MODULE = {
    "tests/proxy/compaction/test_public.py": "the package's public names",
    "tests/rules/laws": "laws that concern several rules",
    "tests/proxy/store/test_at_rest.py": "what each kind of store writes to disk",
    "tests/proxy/store/test_contract.py": "what each kind of store promises",
    "tests/proxy/wire/chat/test_golden.py": "token counts of proxy/wire/chat, compared with those of real servers",
    "tests/proxy/wire/chat/test_surroundings.py": "bytes around the messages, through reading and writing",
}
"""Test files and folders that do not belong to a single module, each with the reason."""


def find_mistakes(root: Path) -> Iterator[str]:
    """Find modules without a test file, test files without a module, and exceptions that are not needed."""
    modules = {path for package in PACKAGES for path in _find_files(root, package) if _has_code(root / path)}
    tests = {path for package in PACKAGES for path in _find_files(root, f"tests/{package}") if _is_test(path)}
    module_of = {test: _find_module(test, modules) for test in tests}
    yield from _find_untested(root, modules - set(module_of.values()))
    yield from _find_strays({test for test, module in module_of.items() if module is None})


def _find_untested(root: Path, modules: set[Path]) -> Iterator[str]:
    long = {module for module in modules if len((root / module).read_bytes().splitlines()) >= MIN_LINES}
    for module in sorted(long):
        if str(module) not in WITHOUT_TEST_FILE:
            yield f"{module}: has no test file; write {Path('tests') / module.parent / f'test_{_name(module)}.py'}"
    for name in sorted(WITHOUT_TEST_FILE):
        if Path(name) not in long:
            yield f"{name}: WITHOUT_TEST_FILE lists it without need; remove it"


def _find_strays(tests: set[Path]) -> Iterator[str]:
    for test in sorted(tests):
        if not any(str(path) in WITHOUT_MODULE for path in (test, *test.parents)):
            yield f"{test}: its module does not exist; name it test_<module>.py or test_<module>_<aspect>.py"
    for name in sorted(WITHOUT_MODULE):
        if not any(Path(name) in (test, *test.parents) for test in tests):
            yield f"{name}: WITHOUT_MODULE lists it without need; remove it"


def _find_files(root: Path, folder: str) -> Iterator[Path]:
    return (path.relative_to(root) for path in (root / folder).rglob("*.py"))


def _is_test(path: Path) -> bool:
    return path.name.startswith("test_")


def _name(module: Path) -> str:
    return module.stem.strip("_")


def _find_module(test: Path, modules: set[Path]) -> Path | None:
    """Find the module in the mirrored folder that the test file's name begins with; the longest name wins."""
    folder = test.parent.relative_to("tests")
    beside = [module for module in modules if module.parent == folder]
    fitting = [module for module in beside if f"{test.stem}_".startswith(f"test_{_name(module)}_")]
    return max(fitting, key=lambda module: len(module.stem), default=None)


def _has_code(path: Path) -> bool:
    """Whether a module is more than a package's `__init__.py` with only a docstring, imports and `__all__`."""
    if path.name != "__init__.py":
        return True
    body = ast.parse(path.read_bytes()).body
    return not all(isinstance(node, ast.Import | ast.ImportFrom | ast.Expr) or _is_all(node) for node in body)


def _is_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


if __name__ == "__main__":
    mistakes = list(find_mistakes(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
    sys.stderr.writelines(f"check_mirror: {mistake}\n" for mistake in mistakes)
    sys.exit(bool(mistakes))
