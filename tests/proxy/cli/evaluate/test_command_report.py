"""What an evaluation prints."""

from io import StringIO

import orjson
from rich.console import Console

from trimtab.proxy.cli.evaluate.asking import Answered, ArmResult
from trimtab.proxy.cli.evaluate.command import Result
from trimtab.proxy.cli.evaluate.exam import ExamQuestion
from trimtab.proxy.cli.evaluate.rehearsal import Tokens

SECRET = ExamQuestion("Which \x1b[2Jport?", "8443", "port 8443", 0.5)
ANSWERED = tuple(Answered(SECRET, f"answer {grade}", grade) for grade in (2, 2, 1, 0))
RESULT = Result(
    model="small",
    judge="large",
    window_tokens=32_000,
    original_tokens=80_000,
    removed_messages=52,
    wanted=6,
    questions=5,
    summaries=3,
    failures=("status 402", "status 402"),
    arms=(
        ArmResult("none", 80_000, problem="does not fit the window"),
        ArmResult("trimtab", 20_000, (*ANSWERED, Answered(SECRET, "answer", None, "judge: no grade"))),
    ),
    spent=Tokens(20, 123_456, 789),
)


def _print(width: int = 100) -> str:
    out = StringIO()
    RESULT.print_table(Console(file=out, width=width))
    return out.getvalue()


def test_the_table_shows_each_arm_by_what_was_measured() -> None:
    """Recall counts graded answers. An arm that was not asked has none. The reasons follow the table."""
    text = _print()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert rows == [
        ["none", "", "80,000", "100.0%", "", "", "", ""],
        ["trimtab", "62.5%", "20,000", "25.0%", "2", "1", "1", "1"],
    ]
    for told in (
        "5 questions about 52 removed messages, window 32,000",
        "none: does not fit the window",
        "trimtab: judge: no grade",
        "1 of 6 questions could not be used.",
        "2 calls for summaries gave none: status 402\n",
        "20 calls, 123,456 prompt tokens, 789 completion tokens",
    ):
        assert told in text
    assert max(map(len, _print(80).splitlines())) <= 80


def test_words_of_the_session_are_shown_on_demand_alone() -> None:
    assert "port?" not in _print()
    assert "answer" not in _print().replace("answers", "")
    assert b"8443" not in RESULT.write_json(details=False)


def test_json_has_all_that_the_table_has() -> None:
    told = orjson.loads(RESULT.write_json(details=False))
    assert told["arms"][1] == {
        "name": "trimtab",
        "tokens": 20_000,
        "recall": 0.625,
        "right": 2,
        "partly": 1,
        "missed": 1,
        "without_grade": 1,
        "problems": ["judge: no grade"],
    }
    assert told["spent"] == {"calls": 20, "prompt": 123_456, "completion": 789}
    detailed = orjson.loads(RESULT.write_json(details=True))
    assert detailed["arms"][1]["answers"][0]["question"]["answer"] == "8443"
