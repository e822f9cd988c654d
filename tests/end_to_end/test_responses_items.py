"""Items of Responses that are counted in their own way, through the whole proxy."""

import orjson
from aiohttp import ClientResponse
from support.client import post

USER = {"role": "user", "content": "Go on."}
SAID = {"role": "assistant", "content": "I do."}
GHOST = b'{"type":"ghost_snapshot","ghost_commit":{"id":"%b","parent":null}}' % (b"f" * 4000)


def read_tokens(answer: ClientResponse) -> int:
    """The tokens of the prompt as the client sent it."""
    return int(answer.headers["x-trimtab-tokens"].partition("original=")[2].partition(",")[0])


async def test_a_local_item_counts_nothing_and_is_not_sent(start_proxy, client, upstream):
    """What is around it is sent byte for byte, and a decision tells of it."""
    proxy = await start_proxy()
    items = [orjson.dumps(item) for item in (USER, SAID, USER)]
    body = b'{ "model":"m", "input":[%b], "temperature":1.50}'
    bodies = [body % b",".join(items), body % b",".join((*items[:2], GHOST, items[2]))]
    answers = [(await post(client, proxy.url + "/v1/responses", one))[0] for one in bodies]

    assert [item.body for item in upstream.chats] == [bodies[0]] * 2
    assert read_tokens(answers[0]) == read_tokens(answers[1])
    assert "x-trimtab-decisions" not in answers[0].headers
    assert "local_items" in answers[1].headers["x-trimtab-decisions"]
