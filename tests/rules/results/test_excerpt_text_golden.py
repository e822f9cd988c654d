"""Excerpts of texts of each kind, as they are: the scores and the choice together."""

import json  # noqa: TID251 - documents as others write them
from collections.abc import Sequence

import pytest
from support.builders import call, count, count_words
from support.golden import check_golden

from trimtab.rules.results.excerpt import Facts, excerpt_text

WORDS = ["tide", "basin", "crane", "pilot", "ledger", "anchor", "signal", "berth", "cargo", "draught", "winch", "buoy"]
STEPS = [
    f"[{number:03}/240] {WORDS[number % 12]}: module_{number % 37}.o was built in {number % 13} ms"
    for number in range(240)
]
FAULTS = {
    30: [
        "src/crane.c:120:9: error: 'struct hook' has no member named 'lenght'",
        "  120 |     hook->lenght = 0;",
        "      |           ^~~~~~",
    ],
    70: ["warning: unused variable 'winch' in src/berth.c", "note: it is declared here"],
    110: [
        "Traceback (most recent call last):",
        '  File "/srv/quay/main.py", line 40, in main',
        "    run(job)",
        '  File "/srv/quay/jobs.py", line 17, in run',
        "    total = job.size / job.count",
        "ZeroDivisionError: division by zero",
    ],
    150: ["", "the ledger was rebuilt because its version had changed", ""],
    170: [
        "diff --git a/quay.py b/quay.py",
        "index 12ab..34cd 100644",
        "--- a/quay.py",
        "+++ b/quay.py",
        "@@ -3,4 +3,4 @@ def moor():",
        " before",
        "-    return 1",
        "+    return 2",
        " after",
    ],
    200: [
        "FAILED tests/test_quay.py::test_moor - assert 3 == 4",
        "E       assert 3 == 4",
        "tests/test_quay.py:31: AssertionError",
    ],
    239: [
        "=========== 1 failed, 239 passed in 12.31s ===========",
        "make: *** [Makefile:10: all] Error 1",
        "exit status 2",
    ],
}


def _join(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


LOG = [line for number, step in enumerate(STEPS) for line in (step, *FAULTS.get(number, ()))]
SOURCE = [
    line
    for number in range(40)
    for line in (
        f"class {WORDS[number % 12].title()}{number}:" if number % 5 == 0 else "",
        f"    def {WORDS[number % 12]}_{number}(self, load: int) -> int:",
        f'        """Compute the {WORDS[(number * 5) % 12]}."""',
        f"        if load > {number * 3}:",
        f"            raise ValueError('{WORDS[(number * 7) % 12]} is full')",
        f"        return load * {number}  # {WORDS[(number + 3) % 12]}",
    )
]
SCRIPT = [
    line
    for number in range(50)
    for line in (
        f"export const {WORDS[number % 12]}{number} = async (load) => {{",
        f"  await this.{WORDS[(number * 5) % 12]}.send(load, {number});",
        "};",
        f"// the {WORDS[(number * 7) % 12]} is next"
        if number % 3
        else f"export interface Plan{number} {{ load: number }}",
    )
]
PROSE = [
    line
    for number in range(24)
    for line in (
        f"## Of the {WORDS[number % 12]}, part {number}",
        "",
        f"The {WORDS[number % 12]} of the harbour was built {number} years ago and it still serves its town well.",
        f"Nobody who lives there remembers how the {WORDS[(number * 5) % 12]} looked before the great storm came.",
        "It is said that the stones were carried over the hills by hand, one after the other.",
        "",
    )
]
PAGE = [
    "<!doctype html>",
    "<html><head>",
    "<title>Harbour</title>",
    "<style>p { color: red }</style>",
    "</head><body>",
] + [
    line
    for number in range(40)
    for line in (
        f"<h2>{WORDS[number % 12]} {number}</h2>",
        "<div>",
        f"<p>The {WORDS[(number * 5) % 12]} number {number} is open from nine to five.</p>",
        "</div>",
    )
]
MATCHES = [
    f"src/{WORDS[number // 9 % 12]}.py{sign}{number * 4 + 1}{sign}    moor(self.{WORDS[number * 5 % 12]}, {number})"
    for number in range(150)
    for sign in (":" if number % 3 == 0 else "-")
]
LISTING = [
    line
    for number in range(12)
    for line in (
        f"./src/{WORDS[number]}:",
        *(
            f"-rw-r--r-- 1 root root {number * 97 + each} May  3 10:00 {WORDS[(number + each) % 12]}_{each}.py"
            for each in range(14)
        ),
        "",
    )
]
FOUND = [f"./lib/{WORDS[number // 20]}/{WORDS[number * 5 % 12]}_{number}.txt" for number in range(200)]
COMMITS = [
    line
    for number in range(30)
    for line in (
        f"commit {number * 7919 + 0xABCDE:07x}abcdef",
        "Author: Anna <anna@harbour.example>",
        f"Date:   Mon May {number % 28 + 1} 10:00:00 2024",
        "",
        f"    Mend the {WORDS[number % 12]} so that the {WORDS[number * 5 % 12]} holds",
        "",
        f"    It broke when the {WORDS[number * 7 % 12]} was moved.",
        "",
    )
]
TABLE = ["name,load,state"] + [
    f"{WORDS[number % 12]}_{number},{number * 37 % 50},{'gone' if number == 77 else 'ready'}" for number in range(200)
]
TEXTS = {
    "log": _join(LOG),
    "source": _join(SOURCE),
    "source-numbered": _join([f"{number:6}\t{line}" for number, line in enumerate(SOURCE, 300)]),
    "script": _join(SCRIPT),
    "prose": _join(PROSE),
    "page": _join(PAGE),
    "matches": _join(MATCHES),
    "listing": _join(LISTING),
    "found": _join(FOUND),
    "commits": _join(COMMITS),
    "table": _join(TABLE),
    "one-line": " ".join(LOG),
    "few-lines": _join(
        [" ".join(PROSE[:60]), "a short line", " ".join(SOURCE[:90]), "漢字 und ein langer Satz. " * 60]
    ),
    "within": json.dumps({"status": 1, "stdout": _join(LOG), "stderr": _join(LOG[100:160]), "source": _join(SOURCE)}),
}
CALL = call("1", "bash", '{"command": "grep -n pilot_27 harbour/winch_9.py"}')


@pytest.mark.parametrize("name", TEXTS)
def test_an_excerpt_of_a_text_is_as_it_was(name: str) -> None:
    """With little room and with more; for a call that asked for something; counted in other units."""
    text = TEXTS[name]
    check_golden(
        f"excerpts/{name}",
        {
            "120 tokens": str(excerpt_text(text, 120, count, Facts())),
            "350 tokens": str(excerpt_text(text, 350, count, Facts())),
            "250 tokens, asked": str(excerpt_text(text, 250, count, Facts(CALL, is_numbered=False))),
            "200 words": str(excerpt_text(text, 200, count_words, Facts(count=count))),
        },
    )
