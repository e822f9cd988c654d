"""The sessions and requests in this folder are those that `make.py` writes."""

import runpy
from pathlib import Path

FOLDER = Path(__file__).parent
make_files = runpy.run_path(str(FOLDER / "make.py"))["make_files"]


def test_the_files_are_up_to_date():
    assert make_files() == {str(path.relative_to(FOLDER)): path.read_bytes() for path in FOLDER.rglob("*.jsonl")}
