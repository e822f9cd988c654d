"""Tool results without what nobody reads."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.policy import Tidying
from trimtab.rules.results.tidy import tidy_text

ALL = Tidying()
PARTS = (
    "\x1b", "\x1b[31m", "\x1b[2K", "\x1b]8;;a\x1b\\", "\x9b1m", "\x9d0;t\x07", "\b", "\r", "\n", "\n\n\n", " ", "\t",
    "12%", " 3/10", "Reading", "...", "12:30:01 ", "\ud800", "文", "{", "}", "[", "]", '"a"', ":", ",", "1", "\\",
    '{"a": 1, "b": [1, 2]}', "@@ -1 +1 @@\n", "|", "#",
)  # fmt: skip
RUNS = st.builds(lambda part, times: part * times, st.sampled_from(PARTS) | st.text(max_size=4), st.integers(1, 12))
TEXTS = st.lists(RUNS, max_size=24).map("".join)
SWITCHES = st.builds(Tidying, *[st.booleans()] * 4)


def tidy(text: str, tidying: Tidying = ALL, *, is_file: bool = False, room: int = 10**9) -> str:
    return tidy_text(text, tidying, is_file=lambda: is_file, fits=lambda short: len(short) <= room)


@given(text=TEXTS, tidying=SWITCHES, is_file=st.booleans(), room=st.integers(0, 200))
def test_never_longer_and_settled(text: str, tidying: Tidying, *, is_file: bool, room: int) -> None:
    """For any text and switches: no longer than before, and a second pass changes nothing."""
    tidied = tidy(text, tidying, is_file=is_file, room=room)
    assert len(tidied) <= len(text)
    assert tidy(tidied, tidying, is_file=is_file, room=room) is tidied
    assert tidied != text or tidied is text


@given(text=TEXTS)
def test_nothing_on_changes_nothing(text: str) -> None:
    assert tidy(text, Tidying(*[False] * 4)) is text
    assert tidy(text, Tidying(*[False] * 4), is_file=True) is text


@pytest.mark.parametrize("part", ["\x1b[0m", " ", "\n", "\r   \r", "\x1b[2K\r", "\t\n", ""], ids=repr)
def test_nothing_becomes_empty(part: str) -> None:
    """Some upstreams refuse a text without a visible character. A client's text without one stays unchanged."""
    for text in (part * 300, part * 100_000):
        assert tidy(text) is text
        assert tidy(text, is_file=True) is text


def test_what_may_be_copied_keeps_its_form() -> None:
    """A diff, and JSON that is a file. Colours are part of neither."""
    diff = "--- a\n+++ b\n@@ -1,3 +1,2 @@\n-one  \r\n+one\r\n \n\n\n\n-copied 5%\rcopied 9%\n"
    assert tidy(diff) is diff
    assert tidy(diff.replace("\n-", "\n\x1b[31m-")) == diff
    data = '{\n  "a": 1,\n  "b": [\n    0,\n    0,\n    0\n  ],\n  "c": "spread over lines, as a formatter wrote it"\n}'
    assert tidy(data, is_file=True) is data
    assert tidy(f"\x1b[32m{data}\x1b[0m", is_file=True) == data
    assert len(tidy(data)) < len(data)


def test_json_is_written_anew_only_where_it_fits() -> None:
    """A text that is truncated anyway is truncated from the original."""
    text = msgspec.json.format(msgspec.json.encode({"zeros": [0] * 40, "name": "one  two"})).decode()
    short = tidy(text)
    assert short == '{"zeros":[' + ",".join("0" * 40) + '],"name":"one  two"}'
    assert tidy(text, room=len(short) - 1) is text
    assert tidy(text, room=len(short)) == short


@pytest.mark.parametrize("colour", ["\x1b[1m", ""])
def test_fits_is_asked_once(colour: str) -> None:
    """Counting tokens is slow: once for a JSON text, never if nothing can be saved."""
    asked: list[str] = []

    def fits(text: str) -> bool:
        asked.append(text)
        return False

    records = [{"name": f"record {number}", "size": number} for number in range(30)]
    text = msgspec.json.format(msgspec.json.encode(records)).decode()
    assert tidy_text(colour + text, ALL, is_file=lambda: False, fits=fits) == text
    assert len(asked) == 1
    assert len(asked[0]) < len(text) / 2
    for nothing_to_gain in ("plain text " * 30, "[1,2,3,4]" * 30, '{"a":"' + "b " * 80 + '"}'):
        tidy_text(nothing_to_gain, ALL, is_file=lambda: False, fits=fits)
    assert len(asked) == 1


@pytest.mark.parametrize(
    "part",
    ["\r", "ab\r", "\x1b[", "\x1b]", "[", '{"a":', '"', "\t\n", "12 34 ", "1" * 999 + "\r", "@@ -", "\ud800"],
    ids=lambda part: repr(part[:8]),
)
def test_hostile_texts_are_survived(part: str) -> None:
    """One line or a hundred thousand: never longer, and a second pass changes nothing."""
    hostile = "a" * 50_000 + part * (100_000 // len(part)) + "\x1b[m"
    tidied = tidy(hostile)
    assert len(tidied) <= len(hostile)
    assert tidy(tidied) == tidied
