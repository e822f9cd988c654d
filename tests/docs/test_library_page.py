"""docs/reference/library.md lists the public names, and its examples do what the page says."""

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


def test_examples_that_stand_alone_run_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Each prints the rules that acted."""
    blocks = [part.split("```", 1)[0] for part in read_page(PAGE).split("<!-- run -->\n```python\n")[1:]]
    told = ("['truncate']", "['truncate']", "['truncate'] ['model', 'input']", "['digest']")
    for block, acted in zip(blocks, told, strict=True):
        exec(block, {"__name__": "__main__"})  # noqa: S102 - our own words
        assert acted in capsys.readouterr().out
