"""Every example of README.md and docs/ is valid, and every marked example runs as its page says."""

from pathlib import Path

import pytest
from support.examples.blocks import Block, WrongMarkError, find_blocks
from support.examples.checks import check
from support.examples.running import run_block

ROOT = Path(__file__).parents[2]
FILES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


def read_blocks(file: Path) -> list[Block]:
    """The blocks of a file; none if its marks are wrong, because another test reports that."""
    try:
        return find_blocks(file.read_text("utf-8"), str(file.relative_to(ROOT)))
    except WrongMarkError:
        return []


BLOCKS = [block for file in FILES for block in read_blocks(file)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_marks_and_languages_are_as_the_tests_need_them(file: Path) -> None:
    find_blocks(file.read_text("utf-8"), str(file.relative_to(ROOT)))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_an_example_is_valid(block: Block, tmp_path: Path) -> None:
    fault = check(block, tmp_path)
    assert fault is None, f"{block.place}: {fault}"


ELSEWHERE = {"docs/reference/library.md", "docs/tutorial.md"}
"""Those of the library's page run in tests/docs/test_library_page.py, the tutorial's in tests/docs/test_tutorial.py."""
RUN = [block for block in BLOCKS if block.is_run and block.file not in ELSEWHERE]


@pytest.mark.parametrize("block", RUN, ids=lambda block: block.place)
async def test_an_example_runs_as_its_page_says(block: Block, upstream, tmp_path: Path) -> None:
    fault = await run_block(block, upstream.url, tmp_path)
    assert fault is None, f"{block.place}: {fault}"
