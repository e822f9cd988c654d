"""The demo's upstream: scripted answers, refusals, and the simulated prompt cache."""

import re
from contextlib import AbstractAsyncContextManager

import aiohttp
import msgspec
import orjson
import pytest
from aiohttp import web

from trimtab.proxy.cli.demo import PromptCache, SimulatedUpstream
from trimtab.proxy.cli.demo_session import Session, make_session
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.server.app import listen_at

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


def test_a_prompt_that_the_window_does_not_hold_is_not_cached() -> None:
    """Only the second read, without a window, caches it."""
    cache = PromptCache(count_by_heuristic)
    body = chat({"role": "user", "content": "once"})
    assert cache.read(body, 2) == cache.read(body)
    assert cache.read(body).cached_tokens == cache.read(body).prompt_tokens


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


@pytest.mark.parametrize(
    ("messages", "status"),
    [
        ([USER, ACT, RESULT], 200),
        ([USER, ACT, RESULT, USER], 200),
        ([], 400),
        ([USER, ACT], 400),
        ([USER, ACT, USER, RESULT], 400),
        ([USER, RESULT], 400),
        ([USER, ACT, RESULT, RESULT], 400),
    ],
)
async def test_upstream_takes_valid_transcripts_only(messages: list[dict[str, object]], status: int) -> None:
    """Each call needs one result directly after it, or the upstream refuses as OpenAI does."""
    upstream, _ = await ask(make_session(1), chat(*messages))
    assert [served.status for served in upstream.served] == [status]


async def test_upstream_writes_notes_and_refuses_what_it_cannot_read() -> None:
    """A request without stream gets a note with its paths. A body that is not a chat request gets an error in JSON."""
    _, answers = await ask(make_session(1), chat({"role": "user", "content": "read ferry/fares/tax.py\nE  Boom"}), b"{")
    assert "ferry/fares/tax.py" in msgspec.json.decode(answers[0])["choices"][0]["message"]["content"]
    assert msgspec.json.decode(answers[1])["error"]["code"] == "invalid_json"
    upstream = SimulatedUpstream(make_session(1), 1000, count_by_heuristic)
    async with (
        run(upstream) as (_, url),
        aiohttp.ClientSession() as client,
        client.get(f"{url}/v1/models") as response,
    ):
        assert [model["id"] for model in (await response.json())["data"]] == ["demo-model"]
