"""What was cut is fetched back through a running proxy, in every dialect."""

from itertools import pairwise
from typing import Any

import orjson
from support.client import post
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.dialect import list_texts
from support.ids import make_uuid

FACT = "The staging database of merlin-api is merlin-db-77fe."
QUESTION = {"role": "user", "content": "What was the staging database of merlin-api?"}
CUTS = ("defaults.context_window=16000", "defaults.high_water=0.5", "defaults.summary.wait_seconds=0")
INJECT = (*CUTS, "defaults.recall=inject", "defaults.overflow_strategy=prune")


def step(number: int, text: str) -> list[dict[str, Any]]:
    """A call and its result."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": f'{{"n": {number}}}'}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": text},
    ]


def make_talk(steps: int = 20, *, fact: str = FACT) -> list[dict[str, Any]]:
    """A session that is cut; the fact stands in its first result."""
    talk = [{"role": "user", "content": "Mend the build."}]
    for number in range(steps):
        lines = "".join(f"{make_uuid()} was built\n" for _ in range(30))
        talk += step(number, f"{fact}\n{lines}" if number == 0 else lines)
    return [*talk, {"role": "assistant", "content": "Done."}]


@each_dialect
async def test_a_question_gets_what_was_cut(dialect, client, upstream, start_proxy):
    """Behind the question, which stays as it is; the same again with every later request, here and on a replica."""
    proxies = [await start_proxy(*INJECT) for _ in range(2)]
    talk = [*make_talk(), QUESTION]
    later = [*talk, {"role": "assistant", "content": "It is merlin-db-77fe."}, {"role": "user", "content": "Go on."}]
    bodies = []
    for messages in (talk, later):
        body = dialect.write(messages)
        body |= {dialect.transcript: body.pop(dialect.transcript)}
        for proxy in proxies:
            response, _ = await post(client, proxy.url + dialect.path, body)
            assert response.status == 200
            assert "recall;saved=-" in response.headers["x-trimtab-decisions"]
            bodies.append(upstream.chats[-1].body)
    assert bodies[0] == bodies[1]
    assert bodies[2] == bodies[3]
    assert bodies[2].startswith(bodies[0].removesuffix(b"]}"))
    said = list_texts(dialect.read(orjson.loads(bodies[0]))[-1])[-1]
    assert said.startswith(f"{QUESTION['content']}\n[trimtab: from removed messages")
    assert FACT in said
    assert not dialect.check_request(orjson.dumps(body), bodies[2])


@each_dialect
async def test_without_a_cut_or_a_name_the_bytes_are_the_clients(dialect, client, upstream, start_proxy):
    proxy = await start_proxy(*INJECT)
    body = orjson.dumps(dialect.write([*make_talk(3), QUESTION]))
    await post(client, proxy.url + dialect.path, body)
    assert upstream.chats[-1].body == body
    response, _ = await post(client, proxy.url + dialect.path, dialect.write([*make_talk(fact="x"), QUESTION]))
    assert "recall" not in response.headers["x-trimtab-decisions"]


@each_dialect
async def test_a_failed_tool_gets_what_it_names(dialect, client, upstream, start_proxy):
    """Behind its own result, in a session that goes on with calls."""
    proxy = await start_proxy(*INJECT)
    failed = "Traceback (most recent call last):\nKeyError: merlin-db-77fe"
    talk = make_talk()[:-1]
    sent = []
    for stop in ([*talk, *step(90, failed)], [*talk, *step(90, failed), *step(91, "ok")]):
        await post(client, proxy.url + dialect.path, dialect.write(stop))
        sent.append(dialect.read_results(orjson.loads(upstream.chats[-1].body)))
    assert FACT in sent[0][-1]
    assert all(FACT in results[20] for results in sent)
    assert all(one == two for one, two in zip(*next(pairwise(sent)), strict=False))
