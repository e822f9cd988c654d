"""docs/reference/library.md lists the public names, and its examples do what the page says."""

import subprocess
import sys

import pytest
from support.reference_pages import find_code, read_page, read_rows, read_section

import trimtab
from trimtab import rules
from trimtab.proxy import compaction

PAGE = "library.md"


@pytest.mark.parametrize("package", [trimtab, compaction, rules], ids=lambda package: package.__name__)
def test_the_page_has_every_public_name_and_no_other(package) -> None:
    rows = read_rows(read_section(PAGE, f"Names in `{package.__name__}`"))
    on_page = [name for row in rows for name in find_code(row[0])]

    assert sorted(on_page) == sorted(package.__all__)


def test_the_page_has_every_error_that_is_public() -> None:
    rows = read_rows(read_section(PAGE, "Errors"))
    public = {name for package in (trimtab, compaction, rules) for name in package.__all__ if name.endswith("Error")}

    assert {row[0].strip("`") for row in rows} == public


def test_examples_that_stand_alone_run_alone() -> None:
    """Each runs in a new interpreter, and prints the rules that acted."""
    blocks = [part.split("```", 1)[0] for part in read_page(PAGE).split("<!-- run -->\n```python\n")[1:]]
    printed = [
        subprocess.run([sys.executable, "-c", block], check=True, capture_output=True, text=True).stdout
        for block in blocks
    ]

    assert len(printed) == 4
    assert "['truncate']" in printed[0]
    assert "['truncate']" in printed[1]
    assert "['truncate'] ['model', 'input']" in printed[2]
    assert "['digest']" in printed[3]
