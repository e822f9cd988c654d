"""The kind of a text is recognised by its lines, and not by lines that only look similar."""

import pytest

from trimtab.rules.results.excerpt import kinds
from trimtab.rules.results.excerpt.kinds import Kind, _sample, tell_kind

CODE = '''import os


class Reader:
    """Reads."""

    def __init__(self, path):
        self.path = path

    def read(self, size=0):
        if not os.path.exists(self.path):
            raise ValueError(self.path)
        with open(self.path) as file:
            return file.read(size)


def main():
    reader = Reader("a")
    for line in reader.read():
        print(line)
'''
PROSE = """Getting started

The program reads a file and writes what it found to another one, unless told otherwise.
You may give it more than one file; they are then read in the order in which they stand.

Every option has a default, which the table below names together with what it means.
Nothing is written before all of the input was read without any mistake in it.
"""
KINDS = {
    "commits": (
        kinds.COMMITS,
        "".join(f"commit {number:040x}\nAuthor: A <a@b.c>\nDate: today\n\n    Fix {number}\n\n" for number in range(9)),
    ),
    "grep": (kinds.MATCHES, "".join(f"src/file_{n % 9}.py:{n}:    value = call({n})\n" for n in range(80))),
    "grep with context": (
        kinds.MATCHES,
        "".join(f"a/b.c-{n}-  before\na/b.c:{n + 1}:  hit {n}\na/b.c-{n + 2}-  behind\n--\n" for n in range(1, 200, 9)),
    ),
    "grep for error": (kinds.MATCHES, "".join(f"src/a.py:{number}:    error = None\n" for number in range(3, 90, 2))),
    "grep in one file": (kinds.MATCHES, "".join(f"{number}:def f{number}():\n" for number in range(3, 300, 7))),
    "find": (kinds.LISTING, "".join(f"./src/part_{number % 5}/file_{number}.c\n" for number in range(90))),
    "ls -l": (kinds.LISTING, "total 8\n" + "".join(f"-rw-r--r-- 1 me us {n} Jan 1 12:00 file\n" for n in range(90))),
    "page": (kinds.PROSE, "<!DOCTYPE html>\n<html>\n<body>\n" + "<p>Some words</p>\n" * 60),
    "source": (kinds.SOURCE, CODE * 4),
    "numbered source": (kinds.SOURCE, "".join(f"{n:6}\t{line}\n" for n, line in enumerate((CODE * 4).splitlines(), 1))),
    "prose": (
        kinds.PROSE,
        "".join(PROSE.replace("The", f"{word} the") for word in ("While", "Where", "Then", "Since")),
    ),
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
    "log with hours": "".join(f"12:{n:02}:01 worker started the next job of the queue\n" for n in range(60)),
    "psql table": " id | name  | sum\n----+-------+-----\n"
    + "".join(f" {n:2} | name{n} | {n * 7}\n" for n in range(60)),
    "CSV": "id,name,type\n" + "".join(f"{n},name {n},some type\n" for n in range(60)),
    "CSV with open ends": "".join(f"record,{n},name,\n" for n in range(60)),
    "TAP": "1..60\n" + "".join(f"ok {n} - adds {n} numbers\n" for n in range(1, 61)),
    "YAML": "".join(f"- name: service_{n}\n  ports:\n    - 80{n:02}\n  enabled: true\n" for n in range(40)),
    "hex dump": "".join(
        f"{n * 16:08x}: 6865 6c6c 6f20 776f 726c 6400 0000 0000  hello world.....\n" for n in range(90)
    ),
    "decimal dump": "".join(f"{n * 10:08}: 6865 6c6c 6f20 776f\n" for n in range(90)),
    "compiler": "".join(f"src/a.c:{n}:{n % 7 + 1}: warning: unused variable 'x{n}'\n" for n in range(1, 90)),
    "type checker": "".join(f"src/a.py:{n}: error: Incompatible types [assignment]\n" for n in range(1, 90)),
    "linter": "".join(f"src/a.py:{n}:80: E501 line too long\n" for n in range(1, 90)),
    "nothing": "",
    "blanks": "\n \n\t\n" * 30,
}


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_told(name: str) -> None:
    """A made-up text of each kind."""
    kind, text = KINDS[name]
    assert tell_kind(text.splitlines(keepends=True)) is kind


@pytest.mark.parametrize("name", LOGS)
def test_what_only_looks_like_a_kind_is_a_log(name: str) -> None:
    """Numbers before colons, signs of code at the end of a line, and positions in files are not enough."""
    assert tell_kind(LOGS[name].splitlines(keepends=True)) is kinds.LOG


def test_code_among_errors_is_a_log() -> None:
    """A text that looks like code but reports how something went."""
    lines = []
    for number in range(60):
        lines += [f"ERROR: case {number} failed\n", "    def f(x):\n", "        return x\n"]
    assert tell_kind(lines) is kinds.LOG


@pytest.mark.parametrize("kind", [kinds.COMMITS, kinds.MATCHES, kinds.LISTING, kinds.SOURCE, kinds.PROSE, kinds.LOG])
def test_each_kind_has_its_scores_and_ends(kind: Kind) -> None:
    """For any text, scores are those of existing lines. The ends leave most of the budget to the lines between."""
    for _, text in KINDS.values():
        lines = text.splitlines(keepends=True)
        scores = kind.score(lines)
        assert set(scores) <= set(range(len(lines)))
        assert all(score >= 0 for score in scores.values())
    assert kind.score([]) == {}
    assert kind.ends.head + kind.ends.tail <= 0.25


@pytest.mark.parametrize("number", [320, 321, 5000])
def test_a_long_text_is_known_by_eight_runs_of_lines_spread_over_it(number: int) -> None:
    sample = _sample([str(line) for line in range(number)])
    assert len(sample) == 320
    assert int(sample[-1]) >= number - 10
