"""What an evaluation prints."""

from io import StringIO

from rich.console import Console
from support.golden import check_golden

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
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_the_table_and_json_show_each_arm_by_what_was_measured() -> None:
    """Recall counts graded answers. An arm that was not asked has none. The reasons follow the table."""
    told = {f"{width} columns": _print(width) for width in (100, 80)}
    told |= {f"JSON, {details=}": RESULT.write_json(details=details).decode() for details in (False, True)}
    check_golden("commands/evaluate", told)
    assert max(map(len, _print(80).splitlines())) <= 80


def test_words_of_the_session_are_shown_on_demand_alone() -> None:
    assert "port?" not in _print()
    assert "answer" not in _print().replace("answers", "")
    assert b"8443" not in RESULT.write_json(details=False)
