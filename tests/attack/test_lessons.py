"""Refusals, reports and planted texts of one client change nothing for another, and cause no refusal by trimtab."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from aiohttp import web
from support.client import post
from support.sessions import make_session
from upstreams.recording import Recorded, completion

from trimtab.proxy.models.calibration import WARM_UP_SAMPLES

WINDOW = 32_768
PATH = "/v1/chat/completions"
PRUNE = "defaults.overflow_strategy=prune"
TOLD = orjson.dumps({"data": [{"id": "m", "max_model_len": WINDOW}]})
SAYS_TOO_LONG = "This model's maximum context length is {} tokens. However, your request has {} input tokens."
WORDS = "the quick brown fox jumps over a lazy dog and reads file number "

Count = Callable[[dict[str, Any]], int]


def count_messages(body: dict[str, Any]) -> int:
    """About as many tokens as trimtab counts."""
    return len(orjson.dumps(body["messages"])) // 5


def count_everything(body: dict[str, Any]) -> int:
    """The count of a server that reads other members than the messages."""
    return len(orjson.dumps(body)) // 5


class Server:
    """A server that refuses a prompt longer than its window, by its own count, and reports that count."""

    def __init__(self, count: Count = count_everything, refuse: Callable[[int], Any] | None = None) -> None:
        self.count = count
        self.refuse = refuse or (lambda tokens: {"error": {"message": SAYS_TOO_LONG.format(WINDOW, tokens)}})
        self.window = WINDOW

    async def __call__(self, recorded: Recorded, _request: web.BaseRequest) -> web.Response:
        roles = [message.get("role") for message in recorded.json["messages"]]
        strange = next((role for role in roles if role not in {"system", "user", "assistant", "tool"}), None)
        if strange is not None:
            return web.json_response({"error": {"message": f"Unexpected role {strange!r}."}}, status=400)
        tokens = self.count(recorded.json)
        if tokens > self.window:
            return web.json_response(self.refuse(tokens), status=400)
        return completion(prompt_tokens=tokens, completion_tokens=1)


def session(steps: int, **members: Any) -> dict[str, Any]:
    """An honest client's session."""
    made = make_session(steps)
    return {"model": "m", "messages": made["messages"][:-1], "tools": made["tools"], **members}


async def ask(client: Any, proxy: Any, body: Any, key: str) -> tuple[int, str, bytes]:
    """Send a request. Returns the status, and the headers with the tokens and the decisions."""
    response, _ = await post(client, proxy.url + PATH, body, Authorization=f"Bearer {key}")
    await proxy.services.lifecycle.idle.wait()
    await proxy.services.models.settle()
    return (
        response.status,
        response.headers.get("x-trimtab-tokens", ""),
        response.headers.get("x-trimtab-decisions", ""),
    )


BIG = {"text": WORDS * 3000}
UNCOUNTED: list[dict[str, Any]] = [
    {"documents": [BIG]},
    {"chat_template_kwargs": {"context": BIG}},
    {"chat_template": WORDS * 3000},
    {"messages": [{"role": "user", "content": WORDS * 45, "documents": [BIG]}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": WORDS * 45, "citations": [BIG]}]}]},
]


@pytest.mark.parametrize("members", UNCOUNTED, ids=", ".join)
async def test_members_that_only_the_server_reads_teach_no_ratio(members, client, upstream, start_proxy) -> None:
    """Refused and successful prompts change nothing for another client or for the same one, even after a restart."""
    upstream.models, upstream.answer = TOLD, Server()
    proxy = await start_proxy("store=sqlite", PRUNE)
    await proxy.services.models.settle()
    attack = {"model": "m", "messages": [{"role": "user", "content": WORDS * 45}], **members}
    small = orjson.loads(orjson.dumps(attack).replace(orjson.dumps(BIG["text"]), orjson.dumps(WORDS * 900)))
    before = await ask(client, proxy, session(40), "victim")
    for _ in range(WARM_UP_SAMPLES):
        await ask(client, proxy, small, "attacker")
    await ask(client, proxy, attack, "attacker")
    for running in (proxy, await start_proxy("store=sqlite", PRUNE)):
        await running.services.models.settle()
        for key in ("victim", "attacker"):
            assert await ask(client, running, session(40), key) == before


def _plant(role: str) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": WORDS * 300}, {"role": "ROLE", "content": "y"}]}
    return orjson.dumps(body).replace(b'"ROLE"', role.encode())


PLANTS = [
    _plant('"user whose maximum context length is 2048 tokens"'),
    _plant('"' + "".join(f"\\u{ord(char):04x}" for char in "maximum context length is 2048 tokens") + '\\ud800"'),
    _plant('"maximum context length is 2048 tokens"').replace(b'"model"', b'"x":NaN,"model"'),
    _plant('"maximum context length is \\uff12\\uff10\\uff14\\uff18 tokens"'),
]


@pytest.mark.parametrize("plant", PLANTS)
async def test_words_that_a_client_has_planted_choose_nobodys_window(plant, client, upstream, start_proxy) -> None:
    """The planting clients are not affected either."""
    upstream.answer = Server(count_messages)
    upstream.answer.window = 100_000
    proxy = await start_proxy("client_keys=[one, two, three]")
    before = await ask(client, proxy, session(40), "three")
    for key in ("one", "two"):
        for _ in range(3):
            await ask(client, proxy, plant, key)

    for key in ("three", "one"):
        assert await ask(client, proxy, session(40), key) == before
