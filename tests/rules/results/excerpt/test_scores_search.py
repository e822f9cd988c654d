"""Search results and listings: the first lines of every file come before more lines of any."""

import pytest

from trimtab.rules.results.excerpt.scores import is_listing, is_matches, score_listing, score_matches


def test_the_first_match_of_each_file_comes_first() -> None:
    """A file with one match is not lost after a file with hundreds."""
    texts = [f"a/many.py:{number}: call({number})\n" for number in range(1, 300)] + ["b/one.py:7: call(x)\n"]
    scores = score_matches(texts)
    assert scores[299] == scores[0]
    assert all(scores[299] > scores[index] for index in range(1, 299))


def test_a_match_comes_before_its_context() -> None:
    texts = [
        "a.c-1-near\n",
        "a.c:2:hit\n",
        *(f"a.c-{number}-context {number}\n" for number in range(3, 20)),
        "a.c-20-\n",
    ]
    scores = score_matches(texts)
    assert max(scores, key=scores.__getitem__) == 1
    assert set(scores) == set(range(19))


def test_folders_come_before_entries() -> None:
    """In each folder, the first entries come first."""
    texts = ["src/a:\n", *(f"file_{number}\n" for number in range(50)), "\n", "src/b:\n", "only\n"]
    scores = score_listing(texts)
    assert scores[0] == scores[52] > scores[53] == scores[1] > scores[50]


@pytest.mark.parametrize("place", ["a.py:3:", "C:\\a.py:3:", "dir/a-b.c:12:", "17:"])
def test_places_of_matches(place: str) -> None:
    """Positions with a drive, with dashes, or with a number alone."""
    lines = [f"{place}x = {number}" for number in range(5)]
    if place == "17:":
        lines = [f"{number * 3 + 1}:x" for number in range(5)]
    assert is_matches(lines)


@pytest.mark.parametrize(
    "line", ["a.c:3:1: error: x", "a.c:3: warning: x", "a.py:3:1: E501 long", "a.rs:3: error[E1]: x"]
)
def test_one_verdict_makes_it_a_log(line: str) -> None:
    """One message of a compiler, wherever it is among lines with positions."""
    assert not is_matches(["in file a.c", *(f"a.c:{number}: x" for number in range(9)), line])


def test_rows_of_digits_are_no_place() -> None:
    """Rows of digits are not positions; addresses, times and dates are not, either."""
    assert not is_matches([f"{number * 10:08}: 6865 6c6c" for number in range(50)])
    assert not is_matches([f"12:{number:02}:00 done" for number in range(50)])
    assert not is_matches([f"2024-01-{number:02} done" for number in range(1, 30)])
    assert not is_listing(["a word", "another"])
