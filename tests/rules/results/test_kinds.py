"""The kind of a text is recognised by its lines, and not by lines that only look similar."""

from itertools import accumulate, chain, pairwise
from unittest import mock

import hypothesis.strategies as st
from hypothesis import given
from support.builders import call, count
from support.markers import check_markers
from support.results import shorten_text

from trimtab.rules.results import kinds
from trimtab.rules.results.kinds import (
    LARGE_CHARS,
    LARGE_LINES,
    LOG,
    MAX_TERMS,
    MIN_TERM_CHARS,
    SOURCE,
    Kind,
    Scan,
    _Best,
    _Found,
    _sample,
    add_terms,
    find_terms,
    is_large,
    split_large,
    tell_kind,
    tell_large_kind,
)

KINDS = {
    "commits": (kinds.COMMITS, "".join(f"commit {n:040x}\nAuthor: A <a@b.c>\n\n    Fix {n}\n\n" for n in range(9))),
    "grep with context": (
        kinds.MATCHES,
        "".join(f"a/b.c-{n}-  before\na/b.c:{n + 1}:  hit {n}\na/b.c-{n + 2}-  behind\n--\n" for n in range(1, 200, 9)),
    ),
    "grep in one file": (kinds.MATCHES, "".join(f"{number}:def f{number}():\n" for number in range(3, 300, 7))),
    "ls -l": (kinds.LISTING, "total 8\n" + "".join(f"-rw-r--r-- 1 me us {n} Jan 1 12:00 file\n" for n in range(90))),
    "changelog": (
        kinds.PROSE,
        "".join(
            f"## {number}.0.0\n\n- {word} readers may now be given more than one file to read\n"
            f"* every writer {word.lower()} waits for the one before it to come to its end\n"
            for number, word in enumerate(("Many", "All", "Some", "Most", "Few", "Several", "Other", "Both"))
        ),
    ),
}  # fmt: skip
LOGS = {
    "access log": "".join(
        f'10.0.0.{n} - - [01/Jan/2024:10:00:{n:02} +0000] "GET /a/{n} HTTP/1.1" 200 {n}\n' for n in range(60)
    ),
    "log with times": "".join(f"2024-01-05 12:{n:02}:01,123 INFO worker: took {n} ms\n" for n in range(60)),
    "psql table": " id | name  | sum\n----+-------+-----\n"
    + "".join(f" {n:2} | name{n} | {n * 7}\n" for n in range(60)),
    "CSV": "id,name,type\n" + "".join(f"{n},name {n},some type\n" for n in range(60)),
    "TAP": "1..60\n" + "".join(f"ok {n} - adds {n} numbers\n" for n in range(1, 61)),
    "YAML": "".join(f"- name: service_{n}\n  ports:\n    - 80{n:02}\n  enabled: true\n" for n in range(40)),
    "hex dump": "".join(
        f"{n * 16:08x}: 6865 6c6c 6f20 776f 726c 6400 0000 0000  hello world.....\n" for n in range(90)
    ),
    "compiler": "".join(f"src/a.c:{n}:{n % 7 + 1}: warning: unused variable 'x{n}'\n" for n in range(1, 90)),
    "type checker": "".join(f"src/a.py:{n}: error: Incompatible types [assignment]\n" for n in range(1, 90)),
}


def test_a_kind_is_told() -> None:
    """What only looks like one is a log: numbers before colons, signs of code at line ends, code among errors."""
    for kind, text in KINDS.values():
        assert tell_kind(text.splitlines(keepends=True)) is kind
    for text in LOGS.values():
        assert tell_kind(text.splitlines(keepends=True)) is kinds.LOG
    lines = []
    for number in range(60):
        lines += [f"ERROR: case {number} failed\n", "    def f(x):\n", "        return x\n"]
    assert tell_kind(lines) is kinds.LOG


def test_the_kind_is_told_from_all_parts_of_the_text() -> None:
    """Eight runs of lines of a long one. Very many characters or lines make it large."""
    code = "".join(f"def function_{number}(value):\n    return value + {number}\n\n" for number in range(10_000))
    assert tell_large_kind(code, 400) is SOURCE
    assert tell_large_kind("x" * 3_000_000, 400) is LOG
    for number in [320, 321, 5000]:
        sample = _sample([str(line) for line in range(number)])
        assert len(sample) == 320
        assert int(sample[-1]) >= number - 10
    assert not is_large("a" * LARGE_CHARS)
    assert is_large("a" * (LARGE_CHARS + 1))
    assert not is_large("a\n" * LARGE_LINES)
    assert is_large("a\n" * (LARGE_LINES + 1))


def score(texts: list[str], *terms: str) -> dict[int, float]:
    scores: dict[int, float] = {}
    add_terms(scores, "".join(texts), [0, *accumulate(map(len, texts))], terms)
    return scores


def test_terms_are_the_words_of_the_arguments() -> None:
    """Few, none short, each once and without the signs around it; a range of lines has none."""
    terms = find_terms(
        call("1", "bash", '{"command":"grep -rn read_header src/parse.c | head\\nread_header... x--- ab"}')
    )
    assert terms == ("read_header", "parse.c")
    assert find_terms(None) == ()
    many = find_terms(call("1", "bash", " ".join(f"word{number}-.-" for number in range(9000))))
    assert len(many) == MAX_TERMS
    assert all(len(term) >= MIN_TERM_CHARS for term in many)
    assert find_terms(call("1", "bash", "\ud800\0{[")) == ()
    assert find_terms(call("1", "bash", '{"command":"sed -n 100,200p"}')) == ()
    assert find_terms(call("1", "view", '{"view_range":[1,200]}')) == ()


def test_lines_with_a_term_and_those_behind_it_are_raised() -> None:
    """The line itself most, if few lines have it. A higher score stays."""
    texts = [f"line {number}\n" for number in range(200)]
    texts[100] = "def read_header():\n"
    scores = score(texts, "read_header")
    assert min(scores) == 99
    assert max(scores) == 108
    assert max(scores, key=scores.__getitem__) == 100
    texts = [f"common {number}\n" for number in range(200)]
    assert score(texts, "common", "nowhere") == {}
    assert set(score(["common common\n"] * 3, "common")) == {0, 1, 2}
    assert score([], "common") == {}
    assert sorted(score(["wanted_name\n", "b\n", "c\n"], "wanted_name")) == [0, 1, 2]
    assert sorted(score(["a\n", "b\n", "wanted_name\n"], "wanted_name")) == [1, 2]
    texts = ["a\n", "b\n", "wanted_name\n", "c\n", "d\n"]
    scores = {1: 99.0, 4: 99.0}
    add_terms(scores, "".join(texts), [0, *accumulate(map(len, texts))], ("wanted_name",))
    assert (scores[1], scores[4]) == (99.0, 99.0)
    assert scores[3] < scores[2] < 99


# Very long texts are read window by window.

SCAN = Scan(line_chars=40, limit=3, chars=30, window_chars=64, most_units=4)
TEXTS = st.lists(
    st.sampled_from(
        ["a", "error: b", "\n", "\n\n\n", "warning", " ", "x" * 50, "漢字", "👩‍👩‍👧", "e\u0301" * 30, "\r\n"]
    ),
    max_size=60,
).map("".join)


@given(TEXTS)
def test_the_units_joined_are_the_text(text: str) -> None:
    units = split_large(text, LOG, SCAN)
    assert "".join(units.cut(index, index + 1) for index in range(len(units.texts))) == text
    assert len(units.texts) == len(units.lines) - 1 == len(units.offsets) - 1


@given(st.lists(st.sampled_from(["a" * 9 + "\n", "b" * 14 + "\n", "c\n"]), max_size=40))
def test_the_units_at_both_ends_are_kept(lines: list[str]) -> None:
    """As many as the limit, of those that begin or end within its characters; what lies between is one gap."""
    text = "".join(lines)
    places = list(pairwise(accumulate(map(len, lines), initial=0)))
    head = [place for place in places if place[0] < SCAN.chars][: SCAN.limit]
    tail = [place for place in places if place[1] > len(text) - SCAN.chars and place not in head][-SCAN.limit :]
    offsets = split_large(text, Kind(lambda _: {}), SCAN).offsets
    assert list(offsets) == sorted({0, len(text), *chain(*head, *tail)})


def test_what_matters_most_is_kept_of_the_whole_text() -> None:
    """Errors in any window, the lines at both ends, and what the call asked for, unless it is in very many lines."""
    lines = [f"line {number} is fine\n" for number in range(20_000)]
    for place in (4, 9000, 19_990):
        lines[place] = f"error: {place} is not\n"
    units = split_large("".join(lines), LOG, Scan(400, 100, 1000))
    kept = set(units.texts)
    assert {lines[place] for place in (0, 1, 4, 9000, 19_990, 19_999)} <= kept
    assert len(units.texts) < 1000
    lines = [f"ordinary {number % 7}\n" for number in range(30_000)]
    lines[17_000] = "this is wanted_name here\n"
    units = split_large("".join(lines), LOG, Scan(400, 100, 1000, ("wanted_name", "ordinary")))
    assert lines[17_000] in units.texts
    assert len(units.texts) < 1000


def test_no_more_units_are_kept_than_wanted() -> None:
    """However many matter: what cannot be among the best is not held."""
    for line in ["error: it is bad {}\n", "{},1,2\n"]:
        text = "".join(line.format(number) for number in range(6000))
        scan = Scan(400, 20, 1000, window_chars=20_000, most_units=100)
        assert len(split_large(text, LOG, scan).texts) <= 2 * 100 + 4 * scan.limit
    best = _Best(4, 10)
    best.take(_Found(-float(score), score, score + 3, score) for score in range(1, 1000))
    assert len(best._kept) < 2 * 4
    assert best.floor >= 900
    assert [unit.start for unit in best.found()] == [999, 998, 997]


LONG = "x" * 90 + "\n"


@given(st.lists(st.sampled_from(["a\n", "error: b\n", "\n", LONG, "漢字\n", "warning: c", "\n\n"]), max_size=200))
def test_the_markers_of_a_large_text_are_true(pieces: list[str]) -> None:
    """They name the missing lines and tokens, also across windows. The excerpt is never longer than the text."""
    # A long line is its number, repeated: the place of a part of it can then be found.
    numbered = (f"{number:03d}" * 30 + "\n" if piece == LONG else piece for number, piece in enumerate(pieces * 2))
    text = "".join(numbered)
    with mock.patch.multiple(kinds, LARGE_CHARS=100, LARGE_LINES=20):
        short = shorten_text(text, 80, count)
        assert short == shorten_text(text, 80, count)
    assert count(short) <= max(80, count(text))
    check_markers(short, text, count)
