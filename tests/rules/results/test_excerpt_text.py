"""A text that is too long is shortened to its budget, and markers say what is missing."""

import re
from base64 import b64encode

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import count, count_words
from support.results import shorten_text

from trimtab.rules.conversation import CountTokens
from trimtab.rules.results.excerpt import Facts, _shorten_within, excerpt_text, excerpt_written

PIECES = [
    "a", " ", "\n", "\r\n", "error: ", "FAILED tests/test_a.py::test_b\n", "[", "{", '"', "\\", "漢字", "e\u0301",
    "\ud800", "\0", "\t", "0123456789", "Traceback (most recent call last)\n", '  File "a.py", line 3, in b\n',
    "diff --git a b\n", "@@ -1 +1 @@\n", "+x\n", "a/b.py:12: def f():\n", "def f(x):\n", "# Heading\n", "<html>\n",
    "commit 0123abc\n", "1,", "/", "[trimtab: omitted 12 lines (~40 tokens)]\n",
]  # fmt: skip
TEXTS = st.builds(
    lambda pieces, times: "".join(pieces) * times,
    st.lists(st.sampled_from(PIECES), max_size=20),
    st.sampled_from([1, 3, 40]),
)
LINES = [f"step {number}: {'abcdefgh'[number % 8]} was done, {number % 97} of them" for number in range(1500)]
LINES[700] = "src/core.c:14:3: error: 'flag' undeclared"
LINES[1100] = "a very different kind of line, seen once"
LOG = "\n".join(LINES) + "\n"
_FIRST = re.compile(
    r"\[trimtab: omitted lines? (\d+)(?:-(\d+))? \(~(\d+) tokens\); call the tool again for these lines\]"
)
_LATER = re.compile(r"\[trimtab: omitted lines? (\d+)(?:-(\d+))? \(~(\d+) tokens\)\]")


@pytest.mark.parametrize("measure", [count, count_words])
@given(text=TEXTS, limit=st.one_of(st.integers(0, 63), st.integers(64, 400)))
def test_a_result_never_exceeds_its_budget(measure: CountTokens, text: str, limit: int) -> None:
    """For any text: unchanged if it fits, the same outcome each time, and a second pass changes nothing."""
    short = shorten_text(text, limit, measure)
    assert measure(short) <= limit
    assert measure(excerpt_written(text, limit, measure)) <= limit
    assert short == shorten_text(text, limit, measure)
    assert shorten_text(short, limit, measure) is short
    if measure(text) <= limit:
        assert short is text


@given(
    st.lists(
        st.sampled_from(["x", "error: no such file", "", "word " * 9, "漢" * 20, "1,2,3", "  at f()"]), max_size=30
    ),
    st.integers(20, 40),
    st.integers(100, 400),
)
def test_lines_and_markers_cover_the_text(some: list[str], times: int, limit: int) -> None:
    """Each kept line is unchanged and has the number that the markers imply. Each marker covers exactly its gap."""
    lines = some * times
    short = shorten_text("".join(f"{line}\n" for line in lines), limit, count)
    number = 1
    for line in short.splitlines():
        marker = _read_marker(line)
        if marker is None:
            assert lines[number - 1] == line
            number += 1
            continue
        first, last, tokens = marker
        missing = count("".join(f"{line}\n" for line in lines[first - 1 : last]))
        assert first == number
        assert abs(tokens - missing) <= 3 + missing * 0.1
        number = last + 1
    assert number == len(lines) + 1


def _read_marker(line: str) -> tuple[int, int, int] | None:
    """The first and the last line that are missing, and their tokens."""
    if found := _FIRST.fullmatch(line) or _LATER.fullmatch(line):
        return int(found[1]), int(found[2] or found[1]), int(found[3])
    return None


def test_most_of_the_budget_is_used() -> None:
    """The first marker says how to get at what is missing; later ones are short."""
    for limit in (200, 500, 1000, 4000):
        short = excerpt_text(LOG, limit, count, Facts())
        assert short is not None
        assert limit * 0.9 <= count(short) <= limit
    short = excerpt_text(LOG, 400, count, Facts())
    markers = [line for line in short.split("\n") if line.startswith("[trimtab: ")]
    assert _FIRST.fullmatch(markers[0])
    assert len(markers) > 1
    assert all(map(_LATER.fullmatch, markers[1:]))


def test_what_repeats_without_end_is_shortened() -> None:
    """To the budget, and some of the text stays: of one long line, both ends."""
    for unit in ["\n", " ", "a", "[", '"', "\\", "\r", "\0", "\ud800", "\u0301", "error\n", "a/", "_", '{"a":']:
        text = unit * (60_000 // len(unit))
        short = shorten_text(text, 200, count)
        assert short
        assert count(short) <= 200
    for sign in ["\u6f22", "a"]:
        text = f"begin{sign * 20000}end"
        short = shorten_text(text, 400, count)
        assert short.startswith("begin")
        assert short.endswith("end")
        assert count(short) > 250


def test_a_log_within_json_is_shortened_like_a_log() -> None:
    """Agents' tools wrap the output of a command in JSON. Its failures and its end are kept; it stays JSON."""
    lines = [f"tests/test_a.py::test_{number} PASSED" for number in range(900)]
    lines[400] = "E       AssertionError: assert 3 == 4"
    text = "\n".join([*lines, "1 failed, 899 passed in 3.2s"])
    short = shorten_text(orjson.dumps({"output": text, "metadata": {"exit_code": 1}}).decode(), 600, count)
    assert count(short) <= 600
    assert "AssertionError: assert 3 == 4" in str(orjson.loads(short))
    assert "1 failed, 899 passed" in str(orjson.loads(short))


def test_markers_name_lines_as_the_reader_can_ask_for_them() -> None:
    """They use the numbers that the text shows. Within a string of JSON, they use none."""
    text = "".join(
        f"{number}\tdef function_{number}(value):\n{number + 1}\t    return value\n" for number in range(1001, 3001, 2)
    )
    first = re.search(
        r"omitted lines (\d+)-(\d+) \(~\d+ tokens\); call the tool again for these lines\]",
        shorten_text(text, 500, count),
    )
    assert 1001 < int(first[1]) < int(first[2]) <= 3000
    log = "".join(f"poll {number}: done\n" for number in range(3000))
    assert "call the tool again for these lines]" in shorten_text(log, 300, count)
    short = orjson.loads(shorten_text(orjson.dumps({"log": log}).decode(), 300, count))["log"]
    assert "call the tool again for this part]" in short
    assert not re.search(r"trimtab: omitted lines? \d", short)


def test_no_change_of_a_diff_stands_without_its_file() -> None:
    """The last file named before a kept change is the file of that change."""
    files = [
        f"diff --git a/f{file}.py b/f{file}.py\n--- a/f{file}.py\n+++ b/f{file}.py\n"
        + "".join(f"@@ -{hunk * 9} +{hunk * 9} @@\n-old {file} {hunk}\n+new {file} {hunk}\n" for hunk in range(12))
        for file in range(40)
    ]
    file = ""
    for line in shorten_text("".join(files), 1000, count).splitlines():
        file = line.split("/f")[1].split(".py")[0] if line.startswith("diff --git") else file
        if line.startswith(("-old", "+new")):
            assert line.split()[1] == file


def test_a_string_of_json_loses_its_file_only_if_it_does_not_fit() -> None:
    text = f"Saved: {b64encode(bytes(range(256))).decode()}"
    shorten = _shorten_within(count, Facts())
    assert shorten(text, count(text)) == text
    assert shorten(text, count(text) - 1) == "Saved: [trimtab: data, 256 bytes in Base64, omitted]"
