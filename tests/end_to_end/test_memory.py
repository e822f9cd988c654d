"""Retrieved memory and the policy's own limits through a running proxy, in each dialect."""

from typing import Any

import orjson
from support.client import post
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.dialect import list_texts

SETTINGS = ("defaults.context_window=9332", "defaults.completion_reserve=2332")
"""A limit of 7,000 tokens for a request without max tokens."""


def remember(words: int, tag: str = "relevant_context") -> str:
    """A block of retrieved memory."""
    return f'<{tag} from="notes">' + "harbour " * words + f"</{tag}>"


def say(role: str, text: str) -> dict[str, Any]:
    """A message."""
    return {"role": role, "content": text}


@each_dialect
async def test_memory_goes_first_and_stays_away(dialect, client, upstream, start_proxy):
    """Some 7,200 tokens of it at a limit of 7,000: less than 500 go out, and the same beginning in the next request."""
    proxy = await start_proxy(*SETTINGS)
    messages = [say("system", "Be careful."), say("user", f"{remember(7200)}\nHow deep is the harbour?")]
    bodies = []
    for _ in range(2):
        body = dialect.write(messages, model="gpt-4o")
        response, _ = await post(client, proxy.url + dialect.path, body)
        assert response.status == 200
        assert response.headers["x-trimtab-decisions"].startswith("memory;saved=")
        assert ", " not in response.headers["x-trimtab-decisions"]
        sent = upstream.chats[-1]
        bodies.append(dialect.read(sent.json))
        bare = "".join(list_texts(bodies[0][1]))
        without = dialect.write([messages[0], say("user", bare), *messages[2:]], model="gpt-4o")
        assert dialect.check_request(orjson.dumps(without), sent.body) == []
        messages += [say("assistant", "Nine metres."), say("user", "Thank you.")]
    text = "".join(list_texts(bodies[0][1]))
    assert text.startswith("[trimtab: retrieved memory of ")
    assert text.endswith(" tokens removed]\nHow deep is the harbour?")
    assert len(text) < 200
    assert bodies[1][: len(bodies[0])] == bodies[0]
