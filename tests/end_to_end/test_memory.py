"""Retrieved memory and the policy's own limits through a running proxy, in each dialect."""

from typing import Any

import orjson
from support.client import post, settle
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


@each_dialect
async def test_the_oldest_memory_goes_and_the_newest_stays(dialect, client, upstream, start_proxy):
    """In a chat whose user messages all carry memory, with a tag of the configuration."""
    proxy = await start_proxy(*SETTINGS, "defaults.memory.tags=[notes]")
    messages: list[dict[str, Any]] = [say("system", "Be careful.")]
    seen = set()
    for number in range(12):
        messages.append(say("user", f"{remember(900, 'notes')}\nQuestion {number}?"))
        response, _ = await post(client, proxy.url + dialect.path, dialect.write(messages, model="gpt-4o"))
        seen.add(response.headers.get("x-trimtab-decisions", "").partition(";")[0])
        texts = ["".join(list_texts(one)) for one in dialect.read(upstream.chats[-1].json) if one["role"] == "user"]
        assert [text.rpartition("\n")[2] for text in texts] == [f"Question {one}?" for one in range(number + 1)]
        has_memory = ["<notes" in text for text in texts]
        assert has_memory == sorted(has_memory)
        assert has_memory[-1]
        messages.append(say("assistant", f"Answer {number}."))
    assert seen == {"", "memory"}


@each_dialect
async def test_more_turns_than_the_policy_allows_are_cut(dialect, client, upstream, start_proxy):
    """Of more than eight user turns, the newest four stay, and the task statement."""
    proxy = await start_proxy("defaults.context_window=128000", "defaults.max_turns=8")
    messages: list[dict[str, Any]] = [say("system", "Be careful."), say("user", "Ask me.")]
    numbers = []
    for number in range(24):
        messages += [say("assistant", "word " * 300), say("user", f"{number}: " + "harbour " * 100)]
        await post(client, proxy.url + dialect.path, dialect.write(messages, model="gpt-4o"))
        sent = dialect.read(upstream.chats[-1].json)
        await settle(proxy)
        numbers.append(sum(one["role"] == "user" for one in sent))
        assert "Ask me." in "".join(list_texts(sent[1]))
    # A request goes out uncut while a summary is written for its cut.
    assert max(numbers) <= 10
    assert min(numbers[8:]) <= 6
