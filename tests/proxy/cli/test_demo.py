"""`trimtab demo`: what a person sees of it, and how it ends."""

import asyncio
import re
import signal
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from io import StringIO
from pathlib import Path

import aiohttp
import msgspec
import orjson
import pytest
from aiohttp import web
from click.testing import CliRunner
from rich.console import Console
from structlog.testing import capture_logs

from trimtab.proxy.cli.demo import (
    WINDOW_TOKENS,
    Cost,
    Project,
    PromptCache,
    Replay,
    Served,
    Session,
    SimulatedUpstream,
    make_session,
    price,
    replay_session,
    run_demo,
    run_stage,
    share_cached,
    show_replay,
)
from trimtab.proxy.cli.main import main
from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.server.app import listen_at
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Counting
from trimtab.rules.results.pairing import pair_tool_calls

REPLAY = Replay(
    originals=[Cost(20_000, 0), Cost(80_000, 60_000), Cost(191_389, 100_000)],
    statuses=[200, 200, 400],
    served=[
        Served(True, 200, Cost(20_000, 0, 1_000)),  # noqa: FBT003 - a stream
        Served(False, 200, Cost(40_000, 0, 5_000)),  # noqa: FBT003 - no stream
        Served(True, 200, Cost(21_483, 18_000, 2_000)),  # noqa: FBT003 - a stream
        Served(True, 400, Cost(21_000, 20_000)),  # noqa: FBT003 - a stream
    ],
)


def test_table_shows_what_was_measured() -> None:
    """Each figure is in the output, and lines fit a narrow terminal."""
    out = StringIO()
    show_replay(Console(file=out, width=80), REPLAY)
    text = " ".join(out.getvalue().split())
    assert "Without trimtab the upstream would have refused 2 of 3 requests." in text
    rows = {cells[1].strip(): [cell.strip() for cell in cells[2:4]] for cells in read_rows(out.getvalue())}
    assert rows == {
        "requests": ["3", "3"],
        "requests refused": ["2", "1"],
        "prompt tokens": ["291,389", "41,483"],
        "largest prompt (window 32,000)": ["191,389", "40,000"],
        "read from the prompt cache": ["54.9%", "43.4%"],
        "summaries made": ["", "1"],
        "summary prompt tokens": ["", "40,000"],
        "summary completion tokens": ["", "5,000"],
        "cost": ["100.0%", "61.0%"],
    }
    assert max(map(len, out.getvalue().splitlines())) <= 80


def read_rows(text: str) -> list[list[str]]:
    return [line.split("│") for line in text.splitlines() if line.startswith("│")]


class Output(StringIO):
    """Keeps what is printed. `url` has a result as soon as the URL of the proxy is printed."""

    def __init__(self) -> None:
        super().__init__()
        self.url: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def write(self, text: str) -> int:
        found = re.search(r"^export OPENAI_BASE_URL=(\S+)$", text, re.MULTILINE)
        if found:
            self.url.set_result(found.group(1))
        return super().write(text)


def test_command_prints_its_table_alone_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No bar and no log; the user's own TRIMTAB_ variables change nothing, and no file is written."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("trimtab.proxy.cli.demo.make_session", lambda: make_session(1))
    monkeypatch.setenv("TRIMTAB_AUTOCOMPACT_PCT", "not a number")
    result = CliRunner().invoke(main, ["demo"], catch_exceptions=False)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "replaying" not in result.stdout
    assert not list(tmp_path.iterdir())
    assert ["requests refused", "0", "0"] in [[cell.strip() for cell in row[1:4]] for row in read_rows(result.stdout)]


async def test_demo_that_is_kept_serves_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The printed URL answers. A signal ends both servers, even if a client is connected."""
    out = Output()
    monkeypatch.setattr("trimtab.proxy.cli.demo.make_session", lambda: make_session(1))
    monkeypatch.setattr("trimtab.proxy.cli.demo.Console", lambda **_: Console(file=out, width=80))
    body = orjson.dumps({"model": "demo-model", "messages": [{"role": "user", "content": "hello"}]})
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks, aiohttp.ClientSession() as client:
        demo = tasks.create_task(run_demo(keep=True))
        url = await out.url
        async with client.post(f"{url}/chat/completions", data=body) as answer:
            assert (answer.status, "x-trimtab-tokens" in answer.headers) == (200, True)
            await answer.read()
        assert f"See the session on the dashboard: {url.removesuffix('/v1')}/trimtab/\n" in out.getvalue()
        async with client.get(f"{url.removesuffix('/v1')}/trimtab/api/models") as page:
            assert page.status == 200
        assert not demo.done()
        signal.raise_signal(signal.SIGTERM)
        await demo
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(f"{url}/models")


MODULES = 10
"""Chosen: the session is then more than twice as large as the window."""


async def test_replay_keeps_a_long_session_inside_the_window() -> None:
    """No request is refused, no prompt exceeds the window, the prefix stays warm, and all of it costs less.

    The dashboard shows the same tokens. A prompt may exceed the limit: a summary that a busy machine writes late puts
    its cut off.
    """
    session = make_session(MODULES)
    with capture_logs() as logs:
        async with run_stage(session) as (url, upstream):
            replay = await replay_session(url, upstream, session, session.turns)
            async with aiohttp.ClientSession() as client, client.get(f"{url}/trimtab/api/overview") as response:
                totals = orjson.loads(await response.read())["totals"]
    assert replay.statuses == [200] * len(session.turns)
    assert {entry["log_level"] for entry in logs} <= {"debug", "info"}
    assert len(replay.originals) == len(session.turns)
    assert max(one.prompt_tokens for one in replay.originals) > WINDOW_TOKENS
    assert WINDOW_TOKENS >= max(served.cost.prompt_tokens for served in replay.served) > 0
    sent, summaries = replay.sum_cost(is_stream=True), replay.sum_cost(is_stream=False)
    assert sent.cached_tokens > 0.8 * sent.prompt_tokens
    original = sum(replay.originals, Cost(completion_tokens=sent.completion_tokens))
    assert 0 < price(sent + summaries) < price(original)
    shown = (totals["original_tokens"], totals["sent_tokens"], totals["cached_share"])
    assert shown == (original.prompt_tokens, sent.prompt_tokens, share_cached(sent))
    assert summaries.completion_tokens > 0


# The demo's upstream: scripted answers, refusals, and the simulated prompt cache.

CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ACT = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "x"}
USER = {"role": "user", "content": "go"}

_EVENT = re.compile(rb"data: (\{.*\})\n")


def chat(*messages: dict[str, object], **keys: object) -> bytes:
    return orjson.dumps({"model": "demo-model", "messages": messages, **keys})


def run(upstream: SimulatedUpstream) -> AbstractAsyncContextManager[tuple[web.TCPSite, str]]:
    return listen_at(web.Server(upstream.handle), "127.0.0.1:0")


async def ask(session: Session, *bodies: bytes, window_tokens: int = 1000) -> tuple[SimulatedUpstream, list[bytes]]:
    """The upstream after it got these bodies, one after the other, and its answers."""
    upstream = SimulatedUpstream(session, window_tokens, count_by_heuristic)
    answers = []
    async with run(upstream) as (_, url), aiohttp.ClientSession() as client:
        for body in bodies:
            async with client.post(f"{url}/v1/chat/completions", data=body) as response:
                answers.append(await response.read())
    return upstream, answers


def join_stream(body: bytes) -> dict[str, object]:
    """The assistant message that a stream's events add up to."""
    events = [msgspec.json.decode(line[6:]) for line in body.splitlines() if line[:7] == b"data: {"]
    reasons = [choice["finish_reason"] for event in events for choice in event["choices"]]
    content = ""
    calls: list[dict[str, object]] = []
    for delta in [choice["delta"] for event in events for choice in event["choices"]]:
        content += delta.get("content", "")
        calls += [{key: call[key] for key in ("id", "type", "function")} for call in delta.get("tool_calls", [])]
    message: dict[str, object] = {"role": "assistant", "content": content}
    assert reasons == [None] * (len(reasons) - 1) + ["tool_calls" if calls else "stop"]
    return message | ({"tool_calls": calls} if calls else {})


def test_cached_tokens_are_the_longest_prefix_of_any_earlier_prompt() -> None:
    """A prefix counts by whole messages, byte for byte, whichever earlier prompt had it."""
    cache = PromptCache(count_by_heuristic)
    system, one, two = ({"role": role, "content": role * 50} for role in ("system", "user", "assistant"))

    def read(*messages: dict[str, object], **keys: object) -> tuple[int, int]:
        cost = cache.read(chat(*messages, **keys))
        return cost.cached_tokens, cost.prompt_tokens

    _, first = read(system, one)
    assert read(system, two)[0] < first
    assert read(system, one, two)[0] == first
    assert read(system, one) == (first, first)
    assert read(one, system)[0] == 3  # the priming alone
    assert read(system, one, tools=[{"type": "function"}])[0] == 0
    assert read({**system, "name": "x"}, one)[0] == 3


async def test_upstream_streams_the_scripted_answer() -> None:
    """The events of a scripted prompt add up to the message that follows it in the session, calls and all."""
    session = make_session(1)
    bodies = [session.request_body(turn) for turn in session.turns]
    upstream, answers = await ask(session, *bodies, window_tokens=100_000)
    wanted = [msgspec.json.decode(session.messages[turn]) for turn in session.turns]
    assert [join_stream(answer) for answer in answers] == wanted
    assert all(answer.endswith(b"data: [DONE]\n\n") for answer in answers)
    for answer, served in zip(answers, upstream.served, strict=True):
        (usage,) = [told["usage"] for told in map(msgspec.json.decode, _EVENT.findall(answer)) if told.get("usage")]
        assert usage == {
            "prompt_tokens": served.cost.prompt_tokens,
            "completion_tokens": served.cost.completion_tokens,
            "total_tokens": served.cost.prompt_tokens + served.cost.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": served.cost.cached_tokens},
        }
    prompts = [served.cost.prompt_tokens for served in upstream.served]
    assert [served.cost.cached_tokens for served in upstream.served] == [0, *prompts[:-1]]


async def test_upstream_refuses_what_exceeds_its_window() -> None:
    """It gets OpenAI's 400, and is not cached."""
    body = chat({"role": "user", "content": "many words " * 1000})
    upstream, answers = await ask(make_session(1), body, body)
    error = msgspec.json.decode(answers[0])["error"]
    assert (error["type"], error["param"], error["code"]) == (
        "invalid_request_error",
        "messages",
        "context_length_exceeded",
    )
    assert [(served.status, served.cost.cached_tokens) for served in upstream.served] == [(400, 0)] * 2


async def test_upstream_takes_valid_transcripts_only() -> None:
    """Each call needs one result directly after it, or the upstream refuses as OpenAI does. So it does no JSON."""
    right = [[USER, ACT, RESULT], [USER, ACT, RESULT, USER]]
    wrong = [[], [USER, ACT], [USER, ACT, USER, RESULT], [USER, RESULT], [USER, ACT, RESULT, RESULT]]
    bodies = *(chat(*messages) for messages in (*right, *wrong)), b"{", b"[]"
    upstream, answers = await ask(make_session(1), *bodies)
    assert [served.status for served in upstream.served] == [200] * len(right) + [400] * len(wrong)
    assert [msgspec.json.decode(answer)["error"]["code"] for answer in answers[-2:]] == ["invalid_json"] * 2


# The demo's session, and the repository that it is about.


def test_session_is_a_valid_transcript_of_several_windows(count) -> None:
    """Results follow their calls at once. The whole is larger than three windows and than 120,000 tokens."""
    session = make_session()
    request = CHAT.read(session.request_body(len(session.messages)))
    conversation = CHAT.decode(request, Counting(count, make_known()))
    assert pair_tool_calls(conversation, count=count).conversation is conversation
    assert conversation.tokens > max(3 * WINDOW_TOKENS, 120_000)
    roles = [message.role for message in conversation.messages]
    assert (roles[:2], roles[-1]) == (["system", "user"], "assistant")
    assert [index for index, role in enumerate(roles) if role == "assistant"] == list(session.turns)
    ids = [call.id for message in conversation.messages for call in message.tool_calls]
    assert len(ids) == len(set(ids)) > 140
    assert roles.count("user") == 5
    assert any(len(message.tool_calls) > 1 for message in conversation.messages)


def test_the_session_is_the_one_of_which_the_pages_tell() -> None:
    """Its figures stand in the README and in the tutorial: a new digest means that they are measured again."""
    session = make_session(9)
    told = sha256(session.request_body(len(session.messages))).hexdigest()
    assert told[:16] == "bd64fe0cb0503d9c"


SOURCE, TESTS = "ferry/fares/pricing.py", "tests/fares/test_pricing.py"


def test_tests_fail_while_a_module_and_its_tests_disagree() -> None:
    """Only the tests of the module fail, and all of them. They pass again when both files use cents."""
    project = Project()
    assert "FAILED" not in project.run_tests("tests")
    project.write_file(SOURCE, re.sub(r"\bfloat\b", "Cents", project.files[SOURCE]))
    failed = [line for line in project.run_tests("tests").splitlines() if " FAILED " in line]
    assert {line.split("::")[0] for line in failed} == {TESTS}
    assert "PASSED" not in project.run_tests(TESTS)
    project.write_file(TESTS, project.files[TESTS].replace(".25", "25"))
    assert "FAILED" not in project.run_tests("tests")
