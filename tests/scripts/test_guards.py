"""The checks of the source's form find each violation, and nothing else."""

import runpy
from collections.abc import Mapping
from pathlib import Path

import grimp
import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def check_mirror(root: Path, *paths: str, untested: str = "", stray: str = "") -> list[str]:
    """The paths that the check of mirrors reports, for a tree with these files and these exceptions."""
    write(root, dict.fromkeys(paths, lines(60)))
    script = runpy.run_path(str(SCRIPTS / "check_mirror.py"))
    for exceptions, name in ((script["WITHOUT_TEST_FILE"], untested), (script["WITHOUT_MODULE"], stray)):
        exceptions.clear()
        exceptions.update({name: "a reason"} if name else {})
    return [mistake.partition(":")[0] for mistake in script["find_mistakes"](root)]


def check_house(root: Path, files: Mapping[str, str]) -> list[str]:
    """The problems that the check of sizes reports, for these files next to two empty packages."""
    write(root, {"proxy/__init__.py": "", "rules/__init__.py": ""} | dict(files))
    script = runpy.run_path(str(SCRIPTS / "check_house.py"))
    folders = (root / package for package in script["PACKAGES"])
    return [mistake for folder in folders for mistake in script["check_sizes"](folder, root)]


RELAY = "proxy/http/relay.py"


@pytest.mark.parametrize(
    ("paths", "reported"),
    [
        (("rules/text/head_tail.py", "tests/rules/text/test_head_tail.py"), []),
        (("proxy/lru.py", "tests/proxy/test_lru_bytes.py"), []),
        ((RELAY, "tests/proxy/http/conftest.py"), [RELAY]),
        ((RELAY, "tests/proxy/test_relay.py"), [RELAY, "tests/proxy/test_relay.py"]),
        (("rules/a.py", "rules/a_b.py", "tests/rules/test_a_b.py"), ["rules/a.py"]),
    ],
)
def test_a_module_has_its_test_file(tmp_path: Path, paths: tuple[str, ...], reported: list[str]) -> None:
    """In the same folder, or several, each of one aspect; a file belongs to the module with the longest name."""
    assert check_mirror(tmp_path, *paths) == reported


def test_a_short_module_needs_no_test_file_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, {"rules/a.py": lines(59), "rules/b.py": lines(60)})
    assert check_mirror(tmp_path) == ["rules/b.py"]


def test_a_package_needs_tests_if_it_has_code(tmp_path: Path) -> None:
    (tmp_path / "rules/text").mkdir(parents=True)
    (tmp_path / "rules/text/__init__.py").write_text('"""Text."""\n\nfrom trimtab.rules import x\n\n__all__ = ["x"]\n')
    assert check_mirror(tmp_path, "rules/__init__.py") == ["rules/__init__.py"]


def test_exceptions_are_accepted(tmp_path: Path) -> None:
    paths = ("rules/markers.py", "tests/rules/laws/test_laws.py")
    assert check_mirror(tmp_path, *paths, untested="rules/markers.py", stray="tests/rules/laws") == []


def test_an_exception_without_need_is_named(tmp_path: Path) -> None:
    paths = ("rules/markers.py", "tests/rules/test_markers.py")
    exceptions = {"untested": "rules/markers.py", "stray": "tests/rules/laws"}
    assert check_mirror(tmp_path, *paths, **exceptions) == list(exceptions.values())


def lines(count: int) -> str:
    return "X = 1\n" * count


def function(count: int) -> str:
    return "async def f():\n" + "    pass\n" * (count - 1)


@pytest.mark.parametrize(
    ("largest", "one_more", "mistake"),
    [
        ({"rules/a.py": lines(500)}, {"rules/a.py": lines(501)}, "rules/a.py: 501 lines"),
        ({"proxy/a.py": function(40)}, {"proxy/a.py": function(41)}, "proxy/a.py:1: f has 41 lines"),
        (
            {f"proxy/a/{index}.dat": "" for index in range(20)} | {"proxy/a/__init__.py": ""},
            {"proxy/a/20.dat": ""},
            "proxy/a: 21 entries",
        ),
    ],
    ids=["file", "function", "folder"],
)
def test_a_size_may_be_reached_but_not_passed(
    largest: dict[str, str], one_more: dict[str, str], mistake: str, tmp_path: Path
) -> None:
    assert check_house(tmp_path, largest) == []
    (found,) = check_house(tmp_path, one_more)
    assert found.startswith(mistake)


def chain(length: int) -> dict[str, set[str]]:
    """Modules that each import the next one, and one more module that imports two of them."""
    return {str(index): {str(index + 1)} for index in range(1, length)} | {str(length): set(), "a": {"2", "4"}}


def test_floors_are_the_longest_chain_of_imports() -> None:
    check_floors = runpy.run_path(str(SCRIPTS / "check_house.py"))["check_floors"]
    assert list(check_floors("rules", chain(8))) == []
    assert list(check_floors("rules", chain(9))) == [
        "rules: 9 floors, at most 8 on a level: 1 -> 2 -> 3 -> 4 -> 5 -> 6 -> 7 -> 8 -> 9"
    ]


def test_a_circle_of_imports_is_named() -> None:
    check_floors = runpy.run_path(str(SCRIPTS / "check_house.py"))["check_floors"]
    (found,) = check_floors("rules", {"rules.a": {"rules.b"}, "rules.b": {"rules.a"}})
    assert "rules.a -> rules.b -> rules.a" in found or "rules.b -> rules.a -> rules.b" in found


def test_imports_of_what_is_in_a_room_are_the_rooms() -> None:
    """Imports count for the room that contains the modules. Imports inside a room do not count."""
    script = runpy.run_path(str(SCRIPTS / "check_house.py"))
    graph = grimp.ImportGraph()
    for module in ("p", "p.__main__", "p.a", "p.a.x", "p.a.y", "p.b", "other"):
        graph.add_module(module)
    for importer, imported in (("p.a.x", "p.a.y"), ("p.a.y", "p.b"), ("p.b", "other"), ("p.__main__", "p.a")):
        graph.add_import(importer=importer, imported=imported)
    assert script["find_imports"](graph, "p") == {"p.a": {"p.b"}, "p.b": set()}
