"""`trimtab evaluate`: from a file to a table, against an upstream over real sockets, and how it ends."""

import asyncio
import os
import pty
import signal
from asyncio.subprocess import PIPE
from io import StringIO
from pathlib import Path

import orjson
import pytest
from aiohttp import web
from click.testing import Result
from programs.serving import own_environment
from programs.starts import start_trimtab
from rich.console import Console
from support.command_line import run_trimtab
from support.golden import check_golden
from upstreams.examinee import Examinee, make_session, read_text
from upstreams.recording import FakeUpstream, Recorded

from trimtab.proxy.cli.evaluate import command
from trimtab.proxy.cli.evaluate.asking import Answered, ArmResult
from trimtab.proxy.cli.evaluate.exam import ExamQuestion
from trimtab.proxy.cli.evaluate.rehearsal import Tokens

pytestmark = [pytest.mark.covered, pytest.mark.usefixtures("restored_log")]

SESSION = make_session(28)
FACTS = " ".join(f"The code of harbour{number} is {7000 + number}." for number in range(0, 40, 2))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "session.json"
    path.write_bytes(SESSION)
    return path


async def _evaluate(upstream: FakeUpstream, file: Path, *arguments: str | Path, **environment: str) -> Result:
    """Run the command in a thread, while the upstream answers."""
    everything = ("evaluate", file, "--upstream", upstream.url, "--window", "12000", "--questions", "10", *arguments)
    return await asyncio.to_thread(run_trimtab, *everything, **{"OPENAI_API_KEY": "user-secret", **environment})


async def test_each_arm_is_measured(upstream: FakeUpstream, examinee: Examinee, file: Path) -> None:
    """A summary with half of the facts recalls half of them, the other arms none. The whole session does not fit."""
    examinee.told = FACTS
    # Without pruning each summary is one question, after the forwarded messages.
    result = await _evaluate(upstream, file, "--yes", "--set", "defaults.overflow_strategy=summarize")
    assert result.exit_code == 0, result.output
    told = orjson.loads(result.stdout)
    arms = {arm["name"]: arm for arm in told["arms"]}
    assert list(arms) == ["none", "trimtab", "digest", "truncate"]
    questions = [asked for asked in upstream.requests if b"You write an exam" in asked.body]
    assert 0.2 <= arms["trimtab"]["recall"] <= 0.8
    assert arms["digest"]["recall"] == arms["truncate"]["recall"] == 0
    assert arms["none"]["recall"] is None
    assert "does not fit" in arms["none"]["problems"][0]
    assert arms["truncate"]["tokens"] <= arms["trimtab"]["tokens"] < 12_000 < told["original_tokens"]
    assert (told["questions"], told["summaries"], told["failures"]) == (10, examinee.kinds.count("summary"), [])
    assert told["spent"]["calls"] == len(examinee.kinds) == len(upstream.requests)
    assert len(questions) > 1
    assert {tuple(asked.header("Authorization")) for asked in upstream.requests} == {("Bearer user-secret",)}
    assert "user-secret" not in result.output


async def test_the_price_is_told_and_nothing_asked_without_consent(
    upstream: FakeUpstream, examinee: Examinee, file: Path
) -> None:
    """Without a terminal it ends with status 1. The price goes to standard error."""
    result = await _evaluate(upstream, file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "answers, by exam-model: 30 calls" in result.stderr
    assert "prompt tokens at the prices of a local server" in result.stderr
    assert "no terminal" in result.stderr
    assert "--yes" in result.stderr
    assert upstream.requests == examinee.kinds == []


@pytest.mark.parametrize(("typed", "is_agreed"), [(b"y\n", True), (b"\n", False)])
async def test_a_person_is_asked_on_a_terminal(
    upstream: FakeUpstream, examinee: Examinee, file: Path, typed: bytes, *, is_agreed: bool
) -> None:
    """Only an explicit yes counts."""
    ours, theirs = pty.openpty()
    try:
        process = await _start(upstream, file, stdin=theirs)
        os.write(ours, typed)
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"Go on? [y/N]" in err
    assert process.returncode == (0 if is_agreed else 1)
    assert bool(examinee.kinds) == bool(out) == is_agreed
    assert (b"stopped at your request; no model was asked" in err) != is_agreed


async def _start(
    upstream: FakeUpstream, file: Path, *arguments: str, stdin: int | None = None
) -> asyncio.subprocess.Process:
    everything = ("--upstream", upstream.url, "--window", "12000", "--questions", "4", "--arms", "digest", *arguments)
    streams = {"stdin": stdin, "stdout": PIPE, "stderr": PIPE}
    return await start_trimtab("evaluate", file, *everything, **streams, env=own_environment())


async def test_an_interrupt_ends_it_and_tells_what_was_spent(
    upstream: FakeUpstream, examinee: Examinee, file: Path
) -> None:
    """There is no traceback, and calls in flight are cancelled."""
    waiting = asyncio.Event()

    async def answer(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        if read_text(recorded.json["messages"][-1]).startswith("You write"):
            return await examinee.answer(recorded, request)
        waiting.set()
        await asyncio.Event().wait()
        raise AssertionError

    upstream.answer = answer
    process = await _start(upstream, file, "--yes")
    async with asyncio.timeout(60):
        await waiting.wait()
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
        await upstream.cancelled.wait()
    assert (process.returncode, out) == (130, b"")
    assert b"trimtab: stopped" in err
    assert b"spent so far: " in err
    assert b"Traceback" not in err


async def test_words_of_the_session_are_shown_on_demand_alone(
    upstream: FakeUpstream, examinee: Examinee, file: Path
) -> None:
    plain = await _evaluate(upstream, file, "--yes", "--arms", "digest", "--table")
    detailed = await _evaluate(upstream, file, "--yes", "--arms", "digest", "--table", "--details")
    assert "harbour" not in plain.output
    assert "What is the code of harbour" in detailed.stdout
    assert "│ digest" in plain.stdout
    assert examinee.kinds


async def test_a_model_that_is_named_is_asked_and_a_judge_of_its_own_grades(
    upstream: FakeUpstream, examinee: Examinee, file: Path
) -> None:
    examinee.told = FACTS
    named = ("--model", "named", "--judge", "wise-model")
    result = await _evaluate(upstream, file, "--yes", "--arms", "trimtab", *named)
    models = {(b"You grade" in asked.body, asked.json["model"]) for asked in upstream.requests}
    assert models == {(False, "named"), (True, "wise-model")}
    assert orjson.loads(result.stdout)["judge"] == "wise-model"


@pytest.mark.parametrize("options", [("--api-key-env", "MINE"), ("--set", "upstream.api_key=other-secret")])
async def test_another_key_goes_in_the_users_place(
    upstream: FakeUpstream, examinee: Examinee, file: Path, options: tuple[str, str]
) -> None:
    """That of another variable, or the operator's."""
    result = await _evaluate(upstream, file, "--yes", "--arms", "digest", *options, MINE="other-secret")
    assert {tuple(asked.header("Authorization")) for asked in upstream.requests} == {("Bearer other-secret",)}
    assert "other-secret" not in result.output
    assert examinee.kinds


async def test_a_busy_upstream_is_waited_for(upstream: FakeUpstream, examinee: Examinee, file: Path) -> None:
    """`Retry-After` sets the pause, for questions and for summaries. The result is the same."""
    examinee.told, seen = FACTS, set[bytes]()

    def override(_: str, recorded: Recorded) -> web.Response | None:
        if recorded.body in seen:
            return None
        seen.add(recorded.body)
        return web.Response(status=429, headers={"Retry-After": "0"})

    examinee.override = override
    result = await _evaluate(upstream, file, "--yes", "--arms", "trimtab")
    told = orjson.loads(result.stdout)
    assert (told["questions"], told["failures"], told["arms"][0]["without_grade"]) == (10, [], 0)
    assert 0.2 <= told["arms"][0]["recall"] <= 0.8


async def test_a_model_that_writes_no_question_ends_the_run(
    upstream: FakeUpstream, examinee: Examinee, file: Path
) -> None:
    """No summary was asked for then. The command prints what the questions cost."""
    examinee.override = lambda _kind, _recorded: "lorem {ipsum"
    result = await _evaluate(upstream, file, "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "wrote no usable question" in result.stderr
    assert "spent so far: " in result.stderr
    assert set(examinee.kinds) == {"question"}


async def test_a_judge_that_grades_nothing_leaves_nothing_measured(
    upstream: FakeUpstream, examinee: Examinee, file: Path
) -> None:
    examinee.told = FACTS
    examinee.override = lambda kind, _recorded: "Well." if kind == "grade" else ("hm" if kind == "answer" else None)
    result = await _evaluate(upstream, file, "--yes", "--arms", "trimtab")
    (arm,) = orjson.loads(result.stdout)["arms"]
    assert (result.exit_code, arm["recall"], arm["without_grade"]) == (1, None, 10)
    assert arm["problems"] == ["judge: no grade in its answer"]


@pytest.mark.parametrize(
    ("content", "arguments", "status", "told"),
    [
        (b"hello", (), 2, "not a chat request"),
        (b'{"messages": [{"content": 1}], "model": "m"}', (), 2, "not an object with a role"),
        (b'{"messages": [{"role": "user", "content": "hi"}]}', (), 2, "--model"),
        (make_session(2), (), 1, "compaction removes nothing from this session"),
        (SESSION, ("--arms", "none,other"), 2, "none,trimtab,digest,truncate"),
        (
            SESSION,
            ("--set", "defaults.on_exceeded=error", "--set", "defaults.overflow_strategy=error"),
            1,
            "after compaction, limit",
        ),
    ],
)
async def test_wrong_use_is_named_before_anything_is_asked(
    upstream: FakeUpstream, file: Path, content: bytes, arguments: tuple[str, ...], status: int, told: str
) -> None:
    """The status is 2 if the command was wrong, and 1 if there is nothing to measure."""
    _write(file, content)
    result = await _evaluate(upstream, file, "--yes", *arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    assert told in result.stderr
    assert "Traceback" not in result.output
    assert upstream.requests == []
    assert _read(file) == content


def _write(file: Path, content: bytes) -> None:
    file.write_bytes(content)


def _read(file: Path) -> bytes:
    return file.read_bytes()


# What an evaluation prints.

SECRET = ExamQuestion("Which \x1b[2Jport?", "8443", "port 8443", 0.5)
ANSWERED = tuple(Answered(SECRET, f"answer {grade}", grade) for grade in (2, 2, 1, 0))
RESULT = command.Result(
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


def test_a_result_shows_words_of_the_session_on_demand_alone() -> None:
    assert "port?" not in _print()
    assert "answer" not in _print().replace("answers", "")
    assert b"8443" not in RESULT.write_json(details=False)
