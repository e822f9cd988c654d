"""A request that is refused for the provider's own note in it, over real HTTP."""

from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from aiohttp import web
from support.client import SMALL, post, settle
from support.dialects.to_responses import to_responses
from support.sessions import make_session, requests_of
from upstreams.recording import FakeUpstream, Recorded, answer_plainly, error

SETTINGS = (
    *SMALL,
    "defaults.overflow_strategy=summarize",
    "defaults.summary.by=provider",
    "defaults.summary.max_tokens=600",
)
PACKED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VhbGVk"}
NOTED = b'"encrypted_content"'
SESSION = make_session(30, result_words=150)


@dataclass
class Provider:
    """An upstream that compacts. `refusal`: what it says to a request with a note; empty if it takes it."""

    refusal: str = ""
    asked: int = 0
    sent: list[bytes] = field(default_factory=list)
    refused: int = 0

    async def answer(self, recorded: Recorded, _: web.BaseRequest) -> web.Response:
        if recorded.path.endswith("/compact"):
            self.asked += 1
            return web.json_response({"object": "response.compaction", "output": [PACKED]})
        if self.refusal and NOTED in recorded.body:
            self.refused += 1
            return error(400, message=self.refusal, type="invalid_request_error")
        self.sent += [] if recorded.asks_for_summary else [recorded.body]
        return web.json_response({"object": "response", "status": "completed", "output": []})


@pytest.fixture
def provider(upstream: FakeUpstream) -> Provider:
    one = Provider()
    upstream.answer = one.answer
    return one


async def play(client: Any, proxy: Any, provider: Provider) -> list[int]:
    """The session; once a note was sent, the provider refuses notes. Returns the statuses since then."""
    words, provider.refusal, statuses = provider.refusal, "", list[int]()
    for messages in requests_of(SESSION):
        if provider.sent and NOTED in provider.sent[-1]:
            provider.refusal = words
        body = to_responses({"model": "m", "messages": messages, "tools": SESSION["tools"]})
        response, _ = await post(client, proxy.url + "/v1/responses", body)
        statuses += [response.status] if provider.refusal else []
        await settle(proxy)
    assert statuses
    return statuses


@pytest.mark.parametrize("words", ["The encrypted content could not be verified.", "input[0]: compaction"])
async def test_it_goes_out_again_with_a_digest(words, client, start_proxy, provider, log) -> None:
    provider.refusal = words
    proxy = await start_proxy(*SETTINGS)
    statuses = await play(client, proxy, provider)
    assert set(statuses) == {200}
    assert (provider.refused, provider.asked) == (1, 1)
    assert NOTED not in provider.sent[-1]
    assert b"earlier messages" in provider.sent[-len(statuses)]
    told = [one["rule"] for line in log.lines for one in line.get("decisions") or ()]
    assert told.count("cache_refused") == 1


async def test_the_digest_stays_the_text_of_its_cut(client, start_proxy, provider, upstream) -> None:
    refusing = provider.answer

    async def answer(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        plainly = recorded.asks_for_summary and not recorded.path.endswith("/compact")
        return await (answer_plainly if plainly else refusing)(recorded, request)

    upstream.answer = answer
    provider.refusal = "The encrypted content could not be verified."
    proxy = await start_proxy(*SETTINGS)
    statuses = await play(client, proxy, provider)
    first, *later = [orjson.loads(body)["input"] for body in provider.sent[-len(statuses) :]]
    assert later
    assert [one[: len(first)] == first for one in later] == [True] * len(later)


async def test_another_refusal_is_the_clients(client, start_proxy, provider) -> None:
    provider.refusal = "model: does not exist"
    proxy = await start_proxy(*SETTINGS)
    statuses = await play(client, proxy, provider)
    assert set(statuses) == {400}
    assert provider.refused == len(statuses)
