"""A real upstream: llama.cpp's server, with a window many times smaller than the session."""

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from programs.llama_server import make_model, run_llama
from support.dialects.to_messages import to_messages
from support.dialects.to_responses import to_responses
from support.sessions import make_session, requests_of

from bench.local.server import find_missing, find_smollm, find_twin
from trimtab.proxy.models.discovery import Windows

pytestmark = [pytest.mark.recorded, pytest.mark.skipif(find_missing() is not None, reason=find_missing() or "")]

Wire = dict[str, Any]

WINDOW_TOKENS = 4096

_ALTERNATING = """
{%- for message in messages -%}
  {%- if message.role == 'system' and not loop.first -%}
    {{ raise_exception('Only the first message may be a system message.') }}
  {%- endif -%}
{%- endfor -%}
{%- set rest = messages[1:] if messages[0].role == 'system' else messages -%}
{%- set turn = namespace(user=true) -%}
{%- for message in rest -%}
  {%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) -%}
    {%- if (message.role == 'user') != turn.user -%}
      {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant.') }}
    {%- endif -%}
    {%- set turn.user = not turn.user -%}
  {%- endif -%}
  [{{ message.role }}] {{ message.content }}
{%- endfor -%}
"""
_WITH_USER = """
{%- if not messages | selectattr('role', 'equalto', 'user') | list -%}
  {{ raise_exception('No user query found in messages.') }}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'tool' and loop.index0 > 0 and messages[loop.index0 - 1].role not in ['tool', 'assistant'] -%}
    {{ raise_exception('A tool result must follow its call.') }}
  {%- endif -%}
  [{{ message.role }}] {{ message.content }}
{%- endfor -%}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
async def llama(model: Path, client: aiohttp.ClientSession) -> AsyncIterator[str]:
    async with run_llama(model) as url:
        yield url


async def ask(client: aiohttp.ClientSession, url: str, messages: list[dict[str, object]]) -> tuple[int, dict]:
    body = {"model": "tiny", "messages": messages, "max_tokens": 8}
    async with client.post(url + "/chat/completions", data=orjson.dumps(body)) as response:
        return response.status, orjson.loads(await response.read())


@dataclass(frozen=True, slots=True)
class Spoken:
    """How a session is said to the server in one dialect: the path, the body, and the tokens that it read."""

    path: str
    write: Callable[[list[Wire]], Wire]
    read_tokens: Callable[[Wire], int]


DIALECTS = {
    "chat": Spoken(
        "/chat/completions",
        lambda messages: {"model": "tiny", "messages": messages, "max_tokens": 8},
        lambda usage: usage["prompt_tokens"],
    ),
    "responses": Spoken(
        "/responses",
        lambda messages: to_responses({"messages": messages}, model="tiny") | {"max_output_tokens": 8},
        lambda usage: usage["input_tokens"],
    ),
    "messages": Spoken(
        "/messages",
        lambda messages: without_tools(to_messages({"messages": messages}, model="tiny")) | {"max_tokens": 8},
        lambda usage: usage["input_tokens"] + usage["cache_read_input_tokens"],
    ),
}


def without_tools(body: Wire) -> Wire:
    """The body without the tools that the conversion adds."""
    return {name: value for name, value in body.items() if name != "tools"}


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_session_of_four_windows_finishes_though_nothing_is_configured(name, model, client, start_proxy):
    """The server reports its window, and counts for us: its tokens are bytes. trimtab learns the rest from the usage.

    Every request is answered, fits the window, and is counted as the server counts. Without trimtab, the server refuses
    the session.
    """
    spoken, windows = DIALECTS[name], 4
    session = make_session(30, result_words=320)
    async with run_llama(model, context_tokens=WINDOW_TOKENS) as llama:
        proxy = await start_proxy(f"upstream.base_url={llama}", "defaults.summary.max_tokens=100")
        counts = []
        for messages in requests_of(session):
            body = orjson.dumps(spoken.write(messages))
            async with client.post(proxy.url + "/v1" + spoken.path, data=body) as response:
                answer = orjson.loads(await response.read())
                assert (response.status, answer.get("error")) == (200, None)
            tokens = dict(re.findall(r"(\w+)=(\d+)", response.headers["x-trimtab-tokens"]))
            counts.append((spoken.read_tokens(answer["usage"]), int(tokens["sent"]), int(tokens["original"])))
        async with client.post(
            llama + spoken.path, data=orjson.dumps(spoken.write(session["messages"][:-1]))
        ) as refused:
            assert (refused.status, (await refused.json())["error"]["type"]) == (400, "exceed_context_size_error")
    assert counts[-1][2] > windows * WINDOW_TOKENS
    assert all(reported <= WINDOW_TOKENS for reported, _, _ in counts)
    # The tiny model writes no valid note, so digests are used. Their lists of names have more bytes per token of ours
    # than talk has, and this session's words have fewer than prose, so the ratio varies.
    assert all(abs(sent / reported - 1) < 0.3 for reported, sent, _ in counts[12:])
    async with client.get(proxy.url + "/metrics") as metrics:
        text = (await metrics.read()).decode()
    assert 'trimtab_policy_changes_total{cause="calibration",model="tiny"}' in text


@pytest.mark.parametrize("share", [0.2, 0.66])
async def test_a_server_that_tells_no_window_teaches_it_by_refusing(share, model, client, start_proxy, monkeypatch):
    """Nothing is configured, and the server reports no window. The client sees no error, for any size of a step."""

    async def tell_nothing(*_: object) -> Windows:
        return Windows({}, None)

    monkeypatch.setattr("trimtab.proxy.models.keeping.discover", tell_nothing)
    windows = 5 if share > 0.5 else 3  # many small steps of few windows are more requests still
    session = make_session(round(1.2 * windows / share), result_words=round(share * WINDOW_TOKENS / 11) * 4)
    async with run_llama(model, context_tokens=WINDOW_TOKENS) as llama:
        proxy = await start_proxy(f"upstream.base_url={llama}", "defaults.summary.max_tokens=100")
        originals = []
        for messages in requests_of(session):
            status, answer = await ask(client, proxy.url + "/v1", messages)
            assert (status, answer.get("error")) == (200, None)
            assert answer["usage"]["prompt_tokens"] <= WINDOW_TOKENS
            originals.append(sum(len(str(message["content"])) for message in messages))
    assert originals[-1] > windows * WINDOW_TOKENS  # one byte is almost one token of the server
    async with client.get(proxy.url + "/metrics") as metrics:
        text = (await metrics.read()).decode()
    retries = [line for line in text.splitlines() if line.startswith("trimtab_overflow_retries_total")]
    assert [line.split('result="')[1].split('"')[0] for line in retries] == ["recovered"]
    assert float(retries[0].rpartition(" ")[2]) <= 3


def chat(turns: int) -> dict[str, Any]:
    """A conversation without tool calls."""
    words = " ".join(f"word{number}" for number in range(30))
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are careful."}]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"question {turn}: {words}"})
        messages.append({"role": "assistant", "content": f"answer {turn}: {words}"})
    return {"messages": messages}


@pytest.mark.parametrize(
    ("template", "role"),
    [
        pytest.param(_ALTERNATING, "auto", id="roles alternate, auto"),
        pytest.param(_ALTERNATING, "pair", id="roles alternate, pair"),
        pytest.param(_WITH_USER, "auto", id="a user must speak, auto"),
    ],
)
async def test_strict_chat_templates_take_what_is_forwarded(template, role, model, client, start_proxy):
    """The server's template engine refuses messages that do not alternate, but accepts every request with a cut."""
    tiny = (
        "defaults.context_window=1536",
        "defaults.completion_reserve=64",
        "defaults.summary.max_tokens=64",
        "defaults.summary.min_steps=3",
    )
    async with run_llama(model, template) as llama:
        proxy = await start_proxy(f"upstream.base_url={llama}", *tiny, f"defaults.summary.role={role}")
        wrong = [{"role": "assistant", "content": "first"}, {"role": "system", "content": "late"}]
        assert (await ask(client, llama, wrong))[0] in {400, 500}
        cut = 0
        for session in (make_session(12, result_words=120), chat(12)):
            for messages in requests_of(session):
                body = orjson.dumps({"model": "tiny", "messages": messages, "max_tokens": 1})
                async with client.post(proxy.url + "/v1/chat/completions", data=body) as response:
                    answer = orjson.loads(await response.read())
                    assert (response.status, answer.get("error")) == (200, None)
                decisions = response.headers.get("x-trimtab-decisions", "")
                cut += "summarise" in decisions or "digest" in decisions
        assert cut >= 4


DAY = (
    "the harbour master walks along the pier and writes down which ships are waiting, what they carry, and who has paid"
    " for the berth. The crane is slow today, because the wind comes from the north and the load swings. Nobody is"
    " hurt, but a captain complains that his fish will spoil. Towards the evening the fog comes in, and the pilots stay"
    " ashore. They drink tea in the office, talk about the storm of last winter, and wait for the lighthouse to answer."
)
BACKGROUND = ("defaults.summary.when=background", "defaults.summary.max_tokens=64")
TOOLS = [{"type": "function", "function": {"name": "find_berth", "description": "a free berth " * 40}}]
NOTED = orjson.dumps({"text": DAY}).decode()


async def talk(
    model: Path | None, client: aiohttp.ClientSession, start_proxy: Any, turns: int, *settings: str, window: int = 2048
) -> Wire:
    """A chat that grows out of the window. Returns the summary of each turn, and the tokens that it read anew."""
    if model is None:
        pytest.skip("the model SmolLM2 could not be downloaded")
    messages: list[Wire] = [{"role": "system", "content": "You are a careful harbour master."}]
    read: Wire = {}
    async with run_llama(model, context_tokens=window) as llama:
        proxy = await start_proxy(f"upstream.base_url={llama}", "prices=auto", *settings)
        await proxy.services.models.settle()  # what the server says of itself
        for turn in range(turns):
            messages.append({"role": "user", "content": f"On day {turn} {DAY} {DAY}"})
            body = {"model": "m", "messages": messages, "max_tokens": 4, "temperature": 0, "tools": TOOLS}
            async with client.post(proxy.url + "/v1/chat/completions", data=orjson.dumps(body)) as response:
                answer = orjson.loads(await response.read())
                assert response.status == 200, answer
            usage, told = answer["usage"], dict(re.findall(r"(\w+)=(\d+)", response.headers["x-trimtab-tokens"]))
            assert abs(int(told["sent"]) / usage["prompt_tokens"] - 1) < 0.1
            fresh = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
            read.setdefault(response.headers.get("x-trimtab-summary"), []).append(fresh)
            call = {"id": f"c{turn}", "type": "function", "function": {"name": "find_berth", "arguments": NOTED}}
            messages.append({"role": "assistant", "content": "Noted.", "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": "None is free."})
    return read


async def test_behind_the_template_of_a_real_model_nothing_is_configured(client, start_proxy):
    """The server tells its window, slot and tokenizer, and that its template leaves tools and calls out.

    So every request is answered, first counts are near, and a standing cut keeps the server's cache.
    """
    read = await talk(find_twin(), client, start_proxy, 8)
    assert len(read) > 1
    assert all(max(fresh[1:], default=0) < 300 for fresh in read.values())


async def test_a_small_real_model_is_asked_for_summaries_and_cuts_get_digests(client, start_proxy):
    """Its notes are worth nothing. Nobody waits for them, and every request is answered."""
    read = await talk(find_smollm(), client, start_proxy, 4, *BACKGROUND, window=1024)
    assert {cut.partition("kind=")[2].partition(";")[0] for cut in read if cut} == {"digest"}
