"""Pins and long messages through a running proxy, in every dialect."""

from typing import Any

import orjson
import pytest
from support.client import post
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.dialect import Dialect, list_texts
from support.dialects.spoken.messages import MESSAGES
from support.dialects.spoken.responses import RESPONSES
from support.ids import make_uuid
from support.shortened import put_back, read_pin

PLAIN = ("defaults.tidy=false", "defaults.dedupe=false", "defaults.max_tool_result_tokens=100000")
PIN = ("defaults.pin_instruction=true",)
LIMIT = ("defaults.max_message_tokens=200",)
GOAL = '[trimtab: reminder of the user\'s goal: "Mend the build."'
TODO = {"todos": [{"content": "Run the tests", "status": "in_progress"}]}


def words(number: int) -> str:
    """Lines that are different in each call; a line has some 25 tokens."""
    return "".join(f"{make_uuid()} was built\n" for _ in range(number))


def act(number: int, *results: str, name: str = "run", arguments: Any = None, text: str | None = None) -> list[Any]:
    """A message of the assistant with a call for each result."""
    said = orjson.dumps(arguments or {}).decode()
    calls = [
        {"id": f"c{number}_{rank}", "type": "function", "function": {"name": name, "arguments": said}}
        for rank in range(len(results))
    ]
    answers = [
        {"role": "tool", "tool_call_id": call["id"], "content": one} for call, one in zip(calls, results, strict=True)
    ]
    return [{"role": "assistant", "content": text, "tool_calls": calls}, *answers]


def write(dialect: Dialect, messages: list[Any], **members: Any) -> dict[str, Any]:
    """A body whose transcript is its last member."""
    body = dialect.write(messages, **members)
    return body | {dialect.transcript: body.pop(dialect.transcript)}


async def send(client: Any, upstream: Any, proxy: Any, dialect: Dialect, body: Any) -> tuple[bytes, dict[str, int]]:
    """Send a request. Returns the forwarded body, and what each rule saved."""
    response, _ = await post(client, proxy.url + dialect.path, body)
    assert response.status == 200
    shown = response.headers.get("x-trimtab-decisions", "")
    decisions = dict(item.split(";saved=") for item in shown.split(", ")) if shown else {}
    return upstream.chats[-1].body, {rule: int(saved.partition(";")[0]) for rule, saved in decisions.items()}


def check(dialect: Dialect, body: Any, sent: bytes) -> None:
    """A strict upstream accepts what was sent. But for pins and shortened texts it is what the client said."""
    original = orjson.dumps(body)
    assert dialect.check_request(original, orjson.dumps(put_back(body, orjson.loads(sent)))) == []
    assert put_back(body, orjson.loads(sent)) == body


@each_dialect
async def test_long_output_ends_with_the_goal_and_the_open_item(dialect, client, upstream, start_proxy):
    """One pin for each step that is long enough, at the end of its last result. The metrics count it as added."""
    proxy = await start_proxy(*PLAIN, *PIN)
    talk = [{"role": "user", "content": "Mend the build."}, *act(0, words(60), words(60))]
    talk += [*act(1, "ok", name="TodoWrite", arguments=TODO), *act(2, words(20)), *act(3, words(120))]
    body = write(dialect, [*talk, {"role": "user", "content": "And now?"}])
    sent, decisions = await send(client, upstream, proxy, dialect, body)
    pins = [read_pin(text) for text in dialect.read_results(orjson.loads(sent))]
    assert pins == ["", f"{GOAL}]", "", "", f'{GOAL}; open item of the task list: "Run the tests"]']
    assert list(decisions) == ["pin"]
    assert -120 < decisions["pin"] < -20
    check(dialect, body, sent)
    metrics = await (await client.get(proxy.url + "/metrics")).text()
    assert f'trimtab_tokens_added_total{{model="m",rule="pin"}} {float(-decisions["pin"])}' in metrics


@each_dialect
@pytest.mark.parametrize("thinks", [False, True])
async def test_long_messages_keep_head_and_tail(dialect, thinks, client, upstream, start_proxy):
    """Those of the assistant, with and without calls, and later ones of the system. Thinking and calls stay."""
    proxy = await start_proxy(*PLAIN, *LIMIT)
    long = words(40)
    talk = [
        *([] if dialect is MESSAGES else [{"role": "system", "content": long}]),
        {"role": "user", "content": long},
        {"role": "assistant", "content": long},
        {"role": "user", "content": "Go on."},
        *act(0, long, text=long, arguments={"text": long}),
        *([] if dialect is MESSAGES else [{"role": "developer", "content": long}]),
        {"role": "user", "content": long},
    ]
    body = write(dialect, talk)
    if thinks:
        add_thinking(dialect, body)
    sent, decisions = await send(client, upstream, proxy, dialect, body)
    check(dialect, body, sent)
    assert list(decisions) == ["shorten"]
    assert decisions["shorten"] > 1000
    shortened = [
        message["role"]
        for message in dialect.read(orjson.loads(sent))
        if any("[trimtab: omitted " in text for text in list_texts(message))
    ]
    assert shortened == ["assistant", "assistant", *([] if dialect is MESSAGES else ["developer"])]
    if thinks:
        assert sent.count(b"c2lnbmVk") == orjson.dumps(body).count(b"c2lnbmVk") > 0


def add_thinking(dialect: Dialect, body: dict[str, Any]) -> None:
    """Reasoning before what the model said last."""
    items = body[dialect.transcript]
    if dialect is MESSAGES:
        body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        body["max_tokens"] = 4096
        last = [item for item in items if item["role"] == "assistant"][-1]
        last["content"].insert(0, {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"})
        body[dialect.transcript] = body.pop(dialect.transcript)
    elif dialect is RESPONSES:
        at = max(rank for rank, item in enumerate(items) if item.get("role") == "assistant")
        items.insert(at, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2lnbmVk"})
    else:
        next(item for item in items if item.get("tool_calls"))["reasoning_content"] = "c2lnbmVk"
