"""The pages of docs/architecture name folders, files, layers and sizes correctly."""

import re
import runpy
import shlex
import tomllib

import pytest
from support.reference_pages import ROOT, find_code, read_rows

FOLDER = ROOT / "docs" / "architecture"
PAGES = sorted(page.name for page in FOLDER.glob("*.md"))
PATH = re.compile(r"(?:proxy|rules|tests|bench|scripts|docs|\.ci)/[\w./-]+")


def _read(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def _section(text: str, title: str) -> str:
    return text.split(f"## {title}\n")[1].split("\n## ", maxsplit=1)[0]


@pytest.mark.parametrize("name", PAGES)
def test_every_path_on_a_page_exists(name) -> None:
    """Paths are relative to the root of the repository."""
    paths = {code.rstrip("/") for code in find_code(_read(name)) if PATH.fullmatch(code)}

    assert paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_the_table_has_every_room() -> None:
    """The table lists each folder with modules, at the first level of both packages."""
    rooms = {row[0].strip("`") for row in read_rows(_section(_read("index.md"), "Rooms"))}
    folders = {
        str(path.parent.relative_to(ROOT))
        for package in ("proxy", "rules")
        for path in (ROOT / package).glob("*/__init__.py")
    }

    assert rooms == folders


def test_every_module_beside_the_rooms_is_named() -> None:
    section = _section(_read("index.md"), "Rooms")
    modules = {
        str(path.relative_to(ROOT))
        for package in ("proxy", "rules")
        for path in (ROOT / package).glob("*.py")
        if not path.name.startswith("__")
    }

    assert modules <= set(find_code(section))


def test_the_layers_are_those_of_the_import_contracts() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    shown = _section(_read("index.md"), "Which way imports go").split("```text\n")[1].split("```")[0]
    blocks = {
        block.split("\n")[0]: [line.strip() for line in block.split("\n")[1:] if line] for block in shown.split("\n\n")
    }
    layers = {
        contract["containers"][0].removeprefix("trimtab."): contract["layers"]
        for contract in settings
        if contract["type"] == "layers" and contract.get("containers") in (["trimtab.proxy"], ["trimtab.rules"])
    }

    assert blocks == layers


def test_the_sizes_are_those_that_the_script_checks() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "check_house.py"))
    sizes = [int(row[1]) for row in read_rows(_section(_read("index.md"), "Sizes"))]

    assert sizes == [script[f"MAX_{name}"] for name in ("ENTRIES", "FILE_LINES", "FUNCTION_LINES", "FLOORS")]


def test_the_length_of_a_journey_is_that_of_its_test() -> None:
    text = (ROOT / "tests/end_to_end/test_journey_length.py").read_text("utf-8")
    files, hops, calls = map(int, re.search(r'"small": Price\((\d+), (\d+), (\d+)\)', text).groups())

    assert f"it allows {files} files, {hops} hops and {calls:,} calls" in " ".join(_read("journey.md").split())


def test_the_table_of_steps_has_every_step_of_the_script() -> None:
    """The table leaves out what a step's name says about its object, such as `of rules`."""
    script = (ROOT / "tests" / "run").read_text("utf-8")
    names = [shlex.split(line, comments=True)[1] for line in script.splitlines() if line.lstrip().startswith("step ")]
    steps = {name.partition(" of ")[0].removesuffix(" $*") for name in names}
    rows = read_rows(_section(_read("testing.md"), "What the steps check"))
    told = [name for row in rows for name in row[0].split(", ")]

    assert sorted(told) == sorted(steps)
