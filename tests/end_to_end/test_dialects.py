"""A registered dialect runs through the whole proxy, although its transcripts have another shape than chat's."""

import aiohttp
import orjson
import pytest
from aiohttp import web
from support.client import SMALL, post, settle
from support.turns import TURNS
from upstreams.recording import FakeUpstream, Recorded, completion, write_note

from trimtab.proxy.wire.dialects import CODECS, by_ending
from trimtab.rules.text.markers import NO_RESULT

DIALECTS = (*CODECS, TURNS)
LONG = "".join(f"line {number}: nothing of note in here\n" for number in range(900))
WINDOW = 15_000
"""The longest body, in bytes, that an upstream with a limit accepts."""


def words(text: str) -> dict[str, object]:
    """A user item with only a text."""
    return {"blocks": [{"text": text}]}


def step(number: int, *results: str) -> list[dict[str, object]]:
    """A thought, a call for each result, and one item with all results."""
    ids = [f"c{number}-{rank}" for rank in range(len(results))]
    calls = [{"call": one, "tool": "run", "input": f'{{"n":{number}}}'} for one in ids]
    blocks = [{"result": one, "text": text} for one, text in zip(ids, results, strict=True)]
    return [{"thought": f"step {number}"}, *calls, {"blocks": blocks}]


def body(*items: dict[str, object], **members: object) -> bytes:
    """A request with whitespace that trimtab's encoders would not write."""
    said = {"model": "m", "instructions": "Be brief.", **members, "items": [words("Mend the build."), *items]}
    return orjson.dumps(said, option=orjson.OPT_INDENT_2)


async def answer_turns(recorded: Recorded, _request: web.BaseRequest) -> web.StreamResponse:
    """A summary or a short text, as the request asks, in the dialect of turns."""
    said = write_note("SUMMARY of the work so far.") if recorded.asks_for_summary else "Done."
    return web.json_response({"said": said, "spent": [11, 3]})


@pytest.fixture(autouse=True)
def _answers_turns(upstream: FakeUpstream) -> None:
    upstream.answer = answer_turns


async def ask(proxy, client: aiohttp.ClientSession, sent: bytes) -> aiohttp.ClientResponse:
    """The proxy's response."""
    return (await post(client, proxy.url + TURNS.path, sent))[0]


async def test_what_no_rule_touches_goes_out_as_it_came(start_proxy, client, upstream, log):
    """The body is sent byte for byte. The log line has the dialect's name and the upstream's usage."""
    sent = body(*step(1, "a.txt", "b.txt"), words("And now?"))
    answer = await ask(await start_proxy(codecs=DIALECTS), client, sent)

    assert upstream.chats[-1].body == sent
    assert await answer.json() == {"said": "Done.", "spent": [11, 3]}
    assert "original=" in answer.headers["x-trimtab-tokens"]
    line = log.lines[-1]
    assert (line["endpoint"], line["outcome"], line["completion_tokens"]) == ("turns", "unchanged", 3)


async def test_of_several_results_in_one_item_only_the_long_one_is_changed(start_proxy, client, upstream):
    """The results next to it, and every byte around the item, are unchanged."""
    sent = body(*step(1, "a.txt", LONG, "c.txt"), words("And now?"), tail={"x": 1.50})
    await ask(await start_proxy(*SMALL, "defaults.context_window=200000", codecs=DIALECTS), client, sent)

    received = upstream.chats[-1].body
    blocks = orjson.loads(received)["items"][-2]["blocks"]
    assert [block["result"] for block in blocks] == ["c1-0", "c1-1", "c1-2"]
    assert [block["text"] for block in blocks[::2]] == ["a.txt", "c.txt"]
    assert len(blocks[1]["text"]) < len(LONG) / 2
    start, stop = sent.index(b'"blocks"', sent.index(b'"call"')), sent.index(b'"And now?"')
    assert received.startswith(sent[: sent.rindex(b"{", 0, start)])
    assert received.endswith(sent[sent.rindex(b"}", 0, sent.rindex(b"{", 0, sent.rindex(b"{", 0, stop))) :])


async def test_a_call_without_a_result_gets_one_in_the_item_of_the_others(start_proxy, client, upstream):
    """Calls in separate items form one turn, and all results follow them. A result without a call is removed."""
    items = step(1, "a.txt", "b.txt")
    del items[-1]["blocks"][1]
    items[-1]["blocks"] += [{"text": "Look again."}]
    early = {"blocks": [{"text": "Begin."}, {"result": "unknown", "text": "?"}]}
    await ask(await start_proxy(codecs=DIALECTS), client, body(early, *items))

    received = upstream.chats[-1].json["items"]
    assert received[:5] == [words("Mend the build."), words("Begin."), *items[:3]]
    answers = [(block.get("result"), block["text"]) for item in received[5:] for block in item["blocks"]]
    assert answers == [("c1-0", "a.txt"), ("c1-1", NO_RESULT), (None, "Look again.")]
    assert len(received) == 6


async def test_a_result_of_an_unknown_call_right_behind_an_open_one_answers_it(start_proxy, client, upstream):
    """The result gets the id of the only call without one, and stays where it was."""
    items = step(1, "a.txt", "b.txt")
    items[-1]["blocks"][1]["result"] = "unknown"
    await ask(await start_proxy(codecs=DIALECTS), client, body(*items))

    received = upstream.chats[-1].json["items"]
    answers = [(block["result"], block["text"]) for item in received[4:] for block in item["blocks"]]
    assert answers == [("c1-0", "a.txt"), ("c1-1", "b.txt")]


@pytest.mark.parametrize("role", ["auto", "user", "system", "assistant", "pair"])
async def test_a_summary_is_asked_in_the_dialect_and_takes_the_place_of_what_was_cut(
    role, start_proxy, client, upstream
):
    """The question goes to the request's path. No system message is made, because this dialect has none."""
    settings = (
        *SMALL,
        "defaults.context_window=4000",
        f"defaults.summary.role={role}",
        "defaults.summary.max_tokens=600",
    )
    proxy = await start_proxy(*settings, codecs=DIALECTS)
    steps = [item for number in range(30) for item in step(number, f"{number} " + "word " * 300)]
    for stop in range(9, len(steps) + 1, 3):
        answer = await ask(proxy, client, body(*steps[:stop]))
        assert answer.status == 200
        await settle(proxy)

    question = upstream.summaries[0]
    assert question.path == TURNS.path
    assert question.json["model"] == "m"
    received = upstream.chats[-1].json["items"]
    assert b"SUMMARY of the work so far." in upstream.chats[-1].body
    assert received[-3:] == steps[-3:]
    assert received[0]["blocks"][0] == {"text": "Mend the build."}
    calls = {item["call"] for item in received if "call" in item}
    assert calls == {block["result"] for item in received for block in item.get("blocks", ()) if "result" in block}


async def test_an_upstream_of_its_own_is_asked_for_summaries_in_chat_completions(start_proxy, client, upstream):
    """The client's dialect does not matter: most servers speak chat completions."""

    async def answer_both(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        if recorded.path == "/v1/chat/completions":
            return completion(write_note("SUMMARY in chat."))
        return await answer_turns(recorded, request)

    upstream.answer = answer_both
    other = (f"upstreams.other.base_url={upstream.url}", "defaults.summary.upstream=other")
    proxy = await start_proxy(*SMALL, "defaults.context_window=4000", *other, codecs=DIALECTS)
    steps = [item for number in range(30) for item in step(number, f"{number} " + "word " * 300)]
    for stop in range(9, len(steps) + 1, 3):
        await ask(proxy, client, body(*steps[:stop]))
        await settle(proxy)

    assert {question.path for question in upstream.summaries} == {"/v1/chat/completions"}
    assert b"SUMMARY in chat." in upstream.chats[-1].body


async def test_what_was_refused_for_its_length_is_sent_again_shorter(start_proxy, client, upstream, log):
    """The refusal is parsed in the dialect's own form."""

    async def refuse_long(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        if len(recorded.body) > WINDOW:
            return web.json_response({"fault": "prompt is too long: 9000 tokens > 3000 maximum"}, status=400)
        return await answer_turns(recorded, request)

    upstream.answer = refuse_long
    proxy = await start_proxy("defaults.completion_reserve=500", codecs=DIALECTS)
    steps = [item for number in range(30) for item in step(number, f"{number} " + "word " * 300)]
    answer = await ask(proxy, client, body(*steps))

    assert answer.status == 200
    first, second = upstream.chats[-2:]
    assert len(second.body) < WINDOW < len(first.body)
    assert log.lines[-1]["outcome"] == "compacted"


async def test_an_error_of_the_proxys_own_is_written_in_the_dialect(start_proxy, client, upstream):
    """A request that cannot fit is refused in the form that clients of this dialect know."""
    proxy = await start_proxy(*SMALL, "defaults.on_exceeded=error", codecs=DIALECTS)
    answer = await ask(proxy, client, body(words("word " * 9000)))

    said = await answer.json()
    assert (answer.status, said["is_too_long"]) == (400, True)
    assert "maximum context length" in said["fault"]
    assert upstream.chats == []


async def test_what_is_no_request_of_the_dialect_is_left_to_the_upstream(start_proxy, client, upstream, log):
    """It is forwarded unchanged."""
    await ask(await start_proxy(codecs=DIALECTS), client, b'{"items":[{"blocks":5}]}')

    assert upstream.chats[-1].body == b'{"items":[{"blocks":5}]}'
    assert log.lines[-1]["outcome"] == "undecodable"


async def test_a_dialect_that_nobody_registered_is_no_business_of_ours(start_proxy, client, upstream, log):
    """Its requests are passed through like requests on any other path."""
    sent = body(*step(1, LONG))
    await ask(await start_proxy(*SMALL), client, sent)

    assert upstream.chats[-1].body == sent
    assert (log.lines[-1]["endpoint"], log.lines[-1]["outcome"]) == ("other", "passed")


def test_two_dialects_cannot_claim_one_path() -> None:
    """Otherwise the meaning of a request would depend on their order."""
    with pytest.raises(ValueError, match="claimed by turns and by turns"):
        by_ending((TURNS, TURNS))
