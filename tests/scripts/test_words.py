"""The check of words finds phrases that are hard to read, and numbers without a reason."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "scripts" / "check_words.py"
SCRIPT = runpy.run_path(str(PATH))


def check(root: Path, name: str, text: str) -> list[str]:
    """The problems reported for a tree with only this file."""
    (root / name).parent.mkdir(parents=True)
    (root / name).write_text(text)
    return list(SCRIPT["find_mistakes"](root))


@pytest.mark.parametrize(
    "phrase", ["waits where none is set", "a count, and it is none", "passes as it came", "tells nothing", "Made anew"]
)
def test_a_phrase_is_found_with_its_line(tmp_path: Path, phrase: str) -> None:
    (mistake,) = check(tmp_path, "docs/page.md", f"# Title\n\nIt {phrase}.\n")
    assert mistake.startswith("docs/page.md:3: ")


def test_a_phrase_is_found_over_the_end_of_a_line(tmp_path: Path) -> None:
    assert len(check(tmp_path, "proxy/lru.py", '"""It keeps the newest, in\nvain."""\n')) == 1


@pytest.mark.parametrize("sentence", ["It says where it is.", "The place where it ends.", "It knows where they are."])
def test_where_may_name_a_place(tmp_path: Path, sentence: str) -> None:
    assert check(tmp_path, "docs/page.md", sentence) == []


def test_a_number_needs_a_reason(tmp_path: Path) -> None:
    (mistake,) = check(tmp_path, "proxy/lru.py", '"""A cache."""\n\nPAUSE_SECONDS = 30 * 2\n')
    assert mistake.startswith("proxy/lru.py:3: PAUSE_SECONDS")


@pytest.mark.parametrize(
    "text",
    [
        "PAUSE_SECONDS = 30  # chosen: users wait no longer\n",
        "# Chosen: users wait no longer.\nPAUSE_SECONDS = 30\n",
        'PAUSE_SECONDS = 30\n"""Chosen: users wait no longer."""\n',
        "# Chosen: as the bench says.\nPAUSE_SECONDS = 30\nPAUSES = 3\n",
        'NAME = "x"\nLIMITS = (1, 2)\nlower = 3\n',
    ],
)
def test_a_reason_may_stand_beside_above_or_below(tmp_path: Path, text: str) -> None:
    assert check(tmp_path, "rules/policy.py", text) == []


def test_the_bench_needs_no_reasons(tmp_path: Path) -> None:
    assert check(tmp_path, "bench/figures.py", "ROUNDS = 3\n") == []


@pytest.mark.parametrize(("text", "status"), [("It waits if none is set.\n", 0), ("It waits where none is set.\n", 1)])
def test_the_status_says_whether_there_is_a_problem(tmp_path: Path, text: str, status: int) -> None:
    (tmp_path / "README.md").write_text(text)
    ended = subprocess.run([sys.executable, PATH, tmp_path], check=False, capture_output=True, text=True)
    assert ended.returncode == status
    assert bool(ended.stderr) is bool(status)
