"""A registered dialect runs through the whole proxy, although its transcripts have another shape than chat's."""

import aiohttp
import orjson
import pytest
from aiohttp import web
from support.client import SMALL, post, settle
from support.dialects.spoken.dialect import Wire
from support.gemini.codec import GEMINI
from support.gemini.spoken import SPOKEN
from upstreams.recording import FakeUpstream, Recorded, write_note

from trimtab.proxy.wire.dialects import CODECS

DIALECTS = (*CODECS, GEMINI)


def words(text: str) -> Wire:
    """A content with only a text."""
    return {"role": "user", "parts": [{"text": text}]}


def answer_to(call_id: str, text: str) -> Wire:
    """A part with a result."""
    return {"functionResponse": {"id": call_id, "name": "run", "response": {"output": text}}}


def step(number: int, *results: str) -> list[Wire]:
    """A thought and a call for each result, and a content with all results."""
    ids = [f"c{number}-{rank}" for rank in range(len(results))]
    calls = [{"functionCall": {"id": one, "name": "run", "args": {"n": number}}} for one in ids]
    told = [answer_to(one, text) for one, text in zip(ids, results, strict=True)]
    thought = {"text": f"step {number}", "thought": True}
    return [{"role": "model", "parts": [thought, *calls]}, {"role": "user", "parts": told}]


def body(*contents: Wire, **members: object) -> bytes:
    """A request with whitespace that trimtab's encoders would not write."""
    system = {"parts": [{"text": "Be brief."}]}
    said = {"model": "m", "systemInstruction": system, **members, "contents": [words("Mend the build."), *contents]}
    return orjson.dumps(said, option=orjson.OPT_INDENT_2)


async def answer_gemini(recorded: Recorded, _request: web.BaseRequest) -> web.StreamResponse:
    """A summary or a short text, as the request asks."""
    said = write_note("SUMMARY of the work so far.") if recorded.asks_for_summary else "Done."
    body = SPOKEN.write_answer(said, prompt_tokens=11, completion_tokens=3)
    return web.Response(body=body, content_type="application/json")


@pytest.fixture(autouse=True)
def _answers_gemini(upstream: FakeUpstream) -> None:
    upstream.answer = answer_gemini


async def ask(proxy, client: aiohttp.ClientSession, sent: bytes) -> aiohttp.ClientResponse:
    """The proxy's response."""
    return (await post(client, proxy.url + GEMINI.path, sent))[0]


async def test_what_no_rule_touches_goes_out_as_it_came(start_proxy, client, upstream, log):
    """The body is sent byte for byte. The log line has the dialect's name and the upstream's usage."""
    sent = body(*step(1, "a.txt", "b.txt"), words("And now?"))
    answer = await ask(await start_proxy(codecs=DIALECTS), client, sent)

    assert upstream.chats[-1].body == sent
    assert (await answer.json())["candidates"][0]["content"]["parts"] == [{"text": "Done."}]
    assert "original=" in answer.headers["x-trimtab-tokens"]
    line = log.lines[-1]
    assert (line["endpoint"], line["outcome"], line["completion_tokens"]) == ("gemini", "unchanged", 3)


@pytest.mark.parametrize("role", ["auto", "pair"])
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
    for stop in range(6, len(steps) + 1, 2):
        answer = await ask(proxy, client, body(*steps[:stop]))
        assert answer.status == 200
        await settle(proxy)

    question = upstream.summaries[0]
    assert question.path == GEMINI.path
    assert question.json["model"] == "m"
    received = upstream.chats[-1].json["contents"]
    assert b"SUMMARY of the work so far." in upstream.chats[-1].body
    assert received[-2:] == steps[-2:]
    assert received[0]["parts"][0] == {"text": "Mend the build."}
    assert SPOKEN.check_request(b"", upstream.chats[-1].body) == []
