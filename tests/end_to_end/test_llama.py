"""A real upstream: llama.cpp's server, with a window many times smaller than the session."""

import re
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from programs.llama_server import make_model, run_llama
from support.client import post
from support.dialects.spoken.all_dialects import CHAT, each_dialect
from support.dialects.spoken.dialect import Dialect
from support.sessions import make_session, requests_of

from bench.local.server import find_missing
from trimtab.proxy.models.discovery import Windows

pytestmark = [pytest.mark.recorded, pytest.mark.skipif(find_missing() is not None, reason=find_missing() or "")]

WINDOW_TOKENS = 4096
READ = {
    "chat": lambda usage: usage["prompt_tokens"],
    "responses": lambda usage: usage["input_tokens"],
    "messages": lambda usage: usage["input_tokens"] + usage["cache_read_input_tokens"],
}
"""The tokens that the server read, by the dialect."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


async def play(
    client: aiohttp.ClientSession, url: str, session: Any, dialect: Dialect = CHAT
) -> list[tuple[int, int, int]]:
    """Send a session. All is answered, and fits. Returns the tokens: those read, sent by our count, and original."""
    counts = []
    for messages in requests_of(session):
        response, body = await post(client, url + dialect.path, dialect.write(messages, model="tiny", max_tokens=8))
        answer = orjson.loads(body)
        assert (response.status, answer.get("error")) == (200, None)
        tokens = dict(re.findall(r"(\w+)=(\d+)", response.headers["x-trimtab-tokens"]))
        counts.append((READ[dialect.name](answer["usage"]), int(tokens["sent"]), int(tokens["original"])))
    assert all(read <= WINDOW_TOKENS for read, _, _ in counts)
    return counts


async def read_metrics(client: aiohttp.ClientSession, url: str) -> str:
    async with client.get(url + "/metrics") as metrics:
        return await metrics.text()


@each_dialect
async def test_a_session_of_three_windows_finishes_though_nothing_is_configured(dialect, model, client, start_proxy):
    """The server reports its window, and counts for us: its tokens are bytes. trimtab learns the rest from the usage.

    Every request is answered, fits the window, and is counted as the server counts. Without trimtab, the server refuses
    the session.
    """
    session = make_session(20, result_words=340)
    async with run_llama(model, context_tokens=WINDOW_TOKENS) as llama:
        proxy = await start_proxy(f"upstream.base_url={llama}", "defaults.summary.max_tokens=100")
        counts = await play(client, proxy.url, session, dialect)
        whole = dialect.write(session["messages"][:-1], model="tiny", max_tokens=8)
        refused, body = await post(client, llama.removesuffix("/v1") + dialect.path, whole)
        assert (refused.status, orjson.loads(body)["error"]["type"]) == (400, "exceed_context_size_error")
    assert counts[-1][2] > 3 * WINDOW_TOKENS
    # The tiny model writes no valid note, so digests are used. Their lists of names have more bytes per token of ours
    # than talk has, and this session's words have fewer than prose, so the ratio varies.
    assert all(abs(sent / read - 1) < 0.3 for read, sent, _ in counts[10:])
    page = await read_metrics(client, proxy.url)
    assert 'trimtab_policy_changes_total{cause="calibration",model="tiny"}' in page


async def test_a_server_that_tells_no_window_teaches_it_by_refusing(model, client, start_proxy, monkeypatch):
    """Nothing is configured, and the server reports no window. The client sees no error."""

    async def tell_nothing(*_: object) -> Windows:
        return Windows({}, None)

    monkeypatch.setattr("trimtab.proxy.models.keeping.discover", tell_nothing)
    async with run_llama(model, context_tokens=WINDOW_TOKENS) as llama:
        proxy = await start_proxy(f"upstream.base_url={llama}", "defaults.summary.max_tokens=100")
        session = make_session(8, result_words=980)  # a step has two thirds of the window
        await play(client, proxy.url, session)
    page = await read_metrics(client, proxy.url)
    retries = re.findall(r'^trimtab_overflow_retries_total\{.*result="(\w+)".* (\S+)$', page, re.MULTILINE)
    assert [result for result, _ in retries] == ["recovered"]
    assert float(retries[0][1]) <= 3
