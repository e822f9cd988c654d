"""Mutants: small changes with stable names, and a verdict on each."""

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from mutation.mutants import PACKAGES, Mutant, find_elsewhere, find_mutants, find_tests, mutate

TESTS = Path(__file__).parents[1]
SOURCE = '''
"""A module."""
LIMIT = 3


class Shop:
    """A shop."""

    def sells(self, number: int = 5) -> bool:
        """Whether."""
        return number < LIMIT and not self.closed

    def pay(self, told: dict) -> int | None:
        if told.get("price"):
            self.closed = True
        for each in told["items"]:
            if each == "last":
                break
        self.note(-told["price"] + 1)
        return told["price"]
'''


def _find(root: Path, source: str) -> list[Mutant]:
    (root / "proxy").mkdir(exist_ok=True)
    (root / "proxy/shop.py").write_text(source)
    return find_mutants(root, ["proxy/shop.py"])


def test_each_operator_changes_what_it_is_named_for(tmp_path: Path) -> None:
    """Only in bodies of functions: no defaults, annotations and texts for readers."""
    said = {(mutant.operator, mutant.before, mutant.after) for mutant in _find(tmp_path, SOURCE)}
    assert said == {
        ("return value", "return number < LIMIT and (not self.closed)",
         "return not (number < LIMIT and (not self.closed))"),
        ("boolean", "number < LIMIT and (not self.closed)", "number < LIMIT or not self.closed"),
        ("comparison", "number < LIMIT", "number >= LIMIT"),
        ("boundary", "number < LIMIT", "number <= LIMIT"),
        ("boolean", "not self.closed", "self.closed"),
        ("boolean", "told.get('price')", "not told.get('price')"),
        ("deleted statement", "if told.get('price'):\n    self.closed = True", "pass"),
        ("string key", "'price'", "'pricex'"),
        ("deleted statement", "self.closed = True", "pass"),
        ("constant", "True", "False"),
        ("string key", "'items'", "'itemsx'"),
        ("deleted statement", "if each == 'last':\n    break", "pass"),
        ("comparison", "each == 'last'", "each != 'last'"),
        ("string key", "'last'", "'lastx'"),
        ("deleted statement", "break", "pass"),
        ("deleted statement", "self.note(-told['price'] + 1)", "pass"),
        ("sign", "-told['price'] + 1", "-told['price'] - 1"),
        ("sign", "-told['price']", "told['price']"),
        ("constant", "1", "2"),
        ("return value", "return told['price']", "return None"),
    }  # fmt: skip


def test_a_mutant_is_compiled_as_it_is_described(tmp_path: Path) -> None:
    """Every other function keeps its code."""
    (mutant,) = [each for each in _find(tmp_path, SOURCE) if each.operator == "boundary"]
    space: dict[str, type] = {}
    exec(compile(mutate([mutant], tmp_path / mutant.module), "shop", "exec"), space)  # noqa: S102
    shop = space["Shop"]()
    shop.closed = False
    assert [shop.sells(number) for number in (2, 3, 4)] == [True, True, False]


def test_an_edit_elsewhere_changes_neither_names_nor_ranks(tmp_path: Path) -> None:
    """Not even one in the same function, unless it adds the same change before."""
    before = {mutant.name: mutant.rank(7) for mutant in _find(tmp_path, SOURCE)}
    moved = SOURCE.replace("class Shop", "def other(a: int) -> int:\n    return a + 1\n\n\nclass Shop")
    moved = moved.replace("        self.note(", "        told.clear()\n        self.note(")
    after = {mutant.name: mutant.rank(7) for mutant in _find(tmp_path, moved)}
    assert before.items() < after.items()
    assert len({*after.values()}) == len(after)
    assert {mutant.rank(8) for mutant in _find(tmp_path, moved)}.isdisjoint(after.values())


def test_equal_changes_in_a_function_are_told_apart(tmp_path: Path) -> None:
    ordinals = [mutant.ordinal for mutant in _find(tmp_path, SOURCE) if mutant.before == "'price'"]
    assert ordinals == [0, 1, 2]


def test_the_tests_of_a_module_are_its_mirror_and_then_its_folder(tmp_path: Path) -> None:
    """With the folders in it. Of several modules whose names begin alike, the longest has the test."""
    for path in ("proxy/r/a.py", "proxy/r/a_b.py", "tests/proxy/r/test_a.py", "tests/proxy/r/test_a_b.py",
                 "tests/proxy/r/test_a_c.py", "tests/proxy/r/test_d.py", "tests/proxy/r/in/test_a.py"):  # fmt: skip
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_text("from trimtab.proxy.r.a import x" if path.endswith("_d.py") else "")
    mirrored, others = find_tests(tmp_path, "proxy/r/a.py")
    assert mirrored == ["tests/proxy/r/test_a.py", "tests/proxy/r/test_a_c.py"]
    assert others == ["tests/proxy/r/test_d.py", "tests/proxy/r/test_a_b.py", "tests/proxy/r/in/test_a.py"]


def test_elsewhere_is_the_rest_of_the_room_what_no_room_has_and_what_names_the_module(tmp_path: Path) -> None:
    """The laws of all rules belong to no room."""
    found = ["tests/docs/test_e.py", "tests/proxy/r/test_b.py", "tests/proxy/s/test_b.py", "tests/rules/laws/test_d.py"]
    for path in ("proxy/r/in/a.py", "tests/proxy/r/in/test_a.py", "tests/proxy/s/test_c.py", "tests/mutation/test_f.py",
                 *found):  # fmt: skip
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_text("from trimtab.proxy.r.in.a import x" if path.endswith("s/test_b.py") else "")
    assert find_elsewhere(tmp_path, ["proxy/r/in/a.py"]) == found


RUN = '''
"""Counts."""

LIMIT = 3


def add(a: int, b: int) -> int:
    return a + b


def is_small(a: int) -> bool:
    return a < LIMIT


def count(stop: int) -> int:
    at = 0
    while at < stop:
        at += 1
    return at


def fill() -> dict[str, int]:
    return {"a": add(1, 1)}


def show() -> None:
    print(add(2, 2))


FILLED = fill()
if __name__ == "__main__":
    show()
'''
TEST = """
import subprocess
import sys

from trimtab.proxy.sums import FILLED, add, count, is_small


def test_sums():
    assert add(2, 1) == 3
    assert is_small(1) and not is_small(9)
    assert (count(0), count(3)) == (0, 3)
    assert FILLED == {"a": 2}
    assert subprocess.check_output([sys.executable, "-m", "trimtab.proxy.sums"]) == b"4\\n"
"""
TEST_OF_LESS = """
from trimtab.proxy.sums import add, is_small


def test_sums():
    assert add(2, 1) == 3
    assert is_small(1) and not is_small(9)
"""
EQUIVALENT = """
[[equivalent]]
module = "proxy/sums.py"
function = "{function}"
operator = "boundary"
before = "a < LIMIT"
reason = "for the test"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project; its code of mutations is ours, with its own list of equivalents."""
    for name, text in (("proxy/sums.py", RUN), ("tests/proxy/test_sums.py", TEST), ("proxy/__init__.py", "")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "tests/mutation").mkdir()
    for path in (TESTS / "mutation").glob("*.py"):
        text = path.read_text("utf-8").replace("CPU_SECONDS = 10\n", "CPU_SECONDS = 1\n")
        (tmp_path / "tests/mutation" / path.name).write_text(text, "utf-8")
    (tmp_path / "rules").mkdir()
    (tmp_path / "src/trimtab").mkdir(parents=True)
    (tmp_path / "src/trimtab/__init__.py").touch()
    for package in PACKAGES:
        (tmp_path / "src/trimtab" / package).symlink_to(f"../../{package}")
    (tmp_path / "tests/mutation/equivalents.toml").write_text("")
    return tmp_path


def _run(project: Path, *options: str) -> tuple[int, str, dict[str, list[str]]]:
    """The exit status, what is printed, and the changes by what became of them."""
    command = [sys.executable, "-m", "mutation", "--json", "told.json", *options]
    # A stranger's run hands options to pytest (.ci/run), which a project without our conftest does not know.
    own = {"PYTHONPATH": f"tests{os.pathsep}src", "PYTHONDONTWRITEBYTECODE": "", "PYTEST_ADDOPTS": ""}
    environment = {**os.environ, **own}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    states: dict[str, list[str]] = {}
    for each in orjson.loads((project / "told.json").read_bytes()):
        states.setdefault(each["state"], []).append(f"{each['operator']} {each['before']}")
    return done.returncode, done.stdout + done.stderr, states


def test_a_change_that_no_test_sees_is_printed_and_fails(project: Path) -> None:
    """Neither endless loops escape, nor what is done at import or in another program. Accepted ones are left out.

    A test that fails without a mutation, too, kills nothing: it is named, and the others judge without it.
    """
    file = project / "tests/proxy/test_sums.py"
    file.write_text("def test_broken():\n    assert 0\n\n" + file.read_text())
    status, told, states = _run(project, "--number", "0")
    assert told.count("fails without a mutation, too: tests/proxy/test_sums.py::test_broken") == 1
    assert status == 1
    assert states.keys() == {"folder", "live"}  # the broken test stands first in the mirror
    assert states["live"] == ["boundary a < LIMIT"]
    assert "live: proxy/sums.py:12 is_small: boundary: a < LIMIT  ->  a <= LIMIT" in told
    assert {"string key 'a'", "deleted statement at += 1", "constant 1", "deleted statement print(add(2, 2))"} <= {
        *states["folder"]
    }

    (project / "proxy/sums.py").write_text(RUN[: RUN.index("def count")])  # all mutants of less
    file.write_text(TEST_OF_LESS)
    equivalents = project / "tests/mutation/equivalents.toml"
    equivalents.write_text(EQUIVALENT.format(function="is_small"))
    status, _, states = _run(project, "--number", "0", "proxy/sums.py")
    assert (status, states["equivalent"], "live" in states) == (0, ["boundary a < LIMIT"], False)

    equivalents.write_text(EQUIVALENT.format(function="is_smaller"))
    status, told, _ = _run(project, "--number", "1")
    assert status == 1
    assert "there is no such mutant any more: ('proxy/sums.py', 'is_smaller', 'boundary', 'a < LIMIT', 0)" in told


ELSEWHERE = """
from trimtab.proxy.sums import add, is_small


def test_broken():
    assert 0


def test_sums():
    assert add(2, 1) == 3
    assert is_small(1)
"""


def test_what_no_test_of_the_folder_sees_meets_all_others(project: Path) -> None:
    """All at once, then each alone the tests that failed: one that fails without a mutation sees nothing."""
    (project / "proxy/sums.py").write_text(RUN[: RUN.index("def count")])
    (project / "tests/proxy/test_sums.py").write_text("def test_nothing():\n    pass\n")
    (project / "tests/test_sums_elsewhere.py").write_text(ELSEWHERE)
    (project / "tests/conftest.py").write_text(
        "from hypothesis import settings\nsettings.register_profile('quick')\n"
        "def pytest_configure(config):\n    config.addinivalue_line('markers', 'slow')\n"
    )
    status, told, states = _run(project, "--number", "0", "proxy/sums.py")
    assert told.count("fails without a mutation, too: tests/test_sums_elsewhere.py::test_broken") == 1
    assert (status, states.keys(), states["live"]) == (1, {"elsewhere", "live"}, ["boundary a < LIMIT"])
