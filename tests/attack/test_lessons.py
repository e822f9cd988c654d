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
from trimtab.proxy.models.hypotheses import FIRST_TEST

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
    _plant('"maximum context length of the request: the \\n context length 2048"'),
    _plant('"' + "".join(f"\\u{ord(char):04x}" for char in "maximum context length is 2048 tokens") + '\\ud800"'),
    _plant('"maximum context length is 2048 tokens"').replace(b'"model"', b'"x":NaN,"model"'),
    _plant('"context length is 4000"'),
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


@pytest.mark.parametrize("member", ["metadata", "user", "x-unknown"])
@pytest.mark.parametrize("status", [400, 413])
async def test_a_limit_of_bytes_teaches_nothing_if_the_messages_are_a_small_part(
    member, status, client, upstream, start_proxy
) -> None:
    """A gateway refuses a long body without a reason. The client is served, and nothing is learned from it."""
    limit = 300_000

    async def answer(recorded: Recorded, _request: web.BaseRequest) -> web.Response:
        if len(recorded.body) > limit:
            return web.Response(status=status, body=b"")
        return completion(prompt_tokens=count_messages(recorded.json), completion_tokens=1)

    upstream.answer = answer
    proxy = await start_proxy(PRUNE)
    body = session(10, **{member: ""})
    body[member] = "x" * (limit + 50 - len(orjson.dumps(body)))
    await ask(client, proxy, body, "attacker")

    for key in ("victim", "attacker"):
        status_code, tokens, _ = await ask(client, proxy, session(40), key)
        assert (status_code, tokens.rpartition("=")[2]) == (200, "119808")


async def test_what_one_client_has_met_is_its_own_and_what_two_have_is_everybodys(
    client, upstream, start_proxy
) -> None:
    """Without client keys, a lesson applies only to the credential that met it, even if another one met the same."""
    upstream.answer = Server(count_messages)
    upstream.answer.window = 8000
    upstream.answer.refuse = lambda tokens: {"error": {"message": SAYS_TOO_LONG.format(8000, tokens)}}
    keyed, open_to_all = await start_proxy("client_keys=[one, two, three]"), await start_proxy()
    limits = {}
    for proxy in (keyed, open_to_all):
        for key in ("one", "two"):
            await ask(client, proxy, session(40), key)
        for key in ("one", "three"):
            _, tokens, _ = await ask(client, proxy, session(1), key)
            limits[proxy.url, key] = tokens.rpartition("=")[2]

    assert list(limits.values()) == ["6000", "6000", "6000", "119808"]


async def test_a_window_that_was_guessed_grows_again_when_the_server_that_refused_is_gone(
    client, upstream, start_proxy
) -> None:
    """After several requests cut to the guessed window, one is sent uncut as a test.

    It is longer than the prompt that was refused, so its answer proves that the guess is wrong.
    """
    upstream.answer = Server(count_messages, lambda _: {"error": {"message": "context length exceeded"}})
    upstream.answer.window = 4000
    proxy = await start_proxy(PRUNE)
    await ask(client, proxy, session(60), "client")
    _, tokens, _ = await ask(client, proxy, session(60), "client")
    assert tokens.rpartition("=")[2] != "119808"

    upstream.answer.window = 100_000
    for _ in range(FIRST_TEST):
        await ask(client, proxy, session(120), "client")
    _, tokens, _ = await ask(client, proxy, session(120), "client")
    assert tokens.rpartition("=")[2] == "119808"


async def test_what_only_a_lesson_says_does_not_fit_is_for_the_upstream_to_judge(client, upstream, start_proxy) -> None:
    """The client gets the upstream's refusal or its answer, never an error by trimtab."""
    upstream.answer = Server(count_messages)
    upstream.answer.window = 4000
    upstream.answer.refuse = lambda tokens: {"error": {"message": SAYS_TOO_LONG.format(4000, tokens)}}
    proxy = await start_proxy("defaults.on_exceeded=error")
    long = {"model": "m", "messages": [{"role": "user", "content": WORDS * 500}]}
    await ask(client, proxy, session(40), "client")
    refused = len(upstream.chats)
    assert (await ask(client, proxy, long, "client"))[0] == 400
    assert len(upstream.chats) > refused
    upstream.answer.window = 100_000
    assert (await ask(client, proxy, long, "client"))[0] == 200
