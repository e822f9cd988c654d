"""Shares of the limit, a truncated system prompt and soft limits through a running proxy, in each dialect."""

from typing import Any

import orjson
import pytest
from support.client import post
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import list_texts
from support.dialects.spoken.messages import MESSAGES
from support.dialects.spoken.responses import RESPONSES

WINDOW = ("defaults.context_window=9332", "defaults.completion_reserve=2332")
"""A limit of 7,000 tokens for a request without max tokens."""
MEMORY = '<relevant_context from="notes">' + "harbour " * 7200 + "</relevant_context>"
RULES = "You help.\n" + "".join(f"Rule {number}: keep the harbour clear.\n" for number in range(600)) + "The end."


def say(role: str, text: str) -> dict[str, Any]:
    """A message."""
    return {"role": role, "content": text}


def find_tokens(response: Any) -> int:
    """The tokens that were sent, as the header tells."""
    pairs = dict(part.partition("=")[::2] for part in response.headers["x-trimtab-tokens"].split(", "))
    return int(pairs["sent"])


def find_rules(response: Any) -> list[str]:
    """The names of the rules that acted, in order."""
    header = response.headers.get("x-trimtab-decisions", "")
    return [part.partition(";")[0] for part in header.split(", ") if part]


def find_section(response: Any, name: str, stage: str = "sent") -> int:
    """The tokens of a section."""
    item = next(part for part in response.headers["x-trimtab-sections"].split(", ") if part.startswith(name + ";"))
    return int(dict(pair.partition("=")[::2] for pair in item.split(";")[1:])[stage])


@pytest.mark.parametrize(("dialect", "apart"), [(CHAT, True), (RESPONSES, False), (MESSAGES, False)], ids=str)
async def test_memory_in_the_system_prompt_goes_if_it_takes_the_room(dialect, apart, client, upstream, start_proxy):
    """Some 7,200 tokens of it at a limit of 7,000. The prompt around it stays, and so does the next request's."""
    proxy = await start_proxy(*WINDOW)
    head = [say("system", MEMORY), say("system", "You help.")] if apart else [say("system", f"You help.\n{MEMORY}")]
    messages, heads = [*head, say("user", "How deep is the harbour?")], []
    for _ in range(2):
        response, _ = await post(client, proxy.url + dialect.path, dialect.write(messages, model="gpt-4o"))
        assert (response.status, find_rules(response)) == (200, ["memory"])
        assert find_tokens(response) < 500
        sent = dialect.read(upstream.chats[-1].json)
        texts = ["".join(list_texts(message)) for message in sent]
        heads.append([text for text, one in zip(texts, sent, strict=True) if one["role"] == "system"])
        assert "How deep is the harbour?" in texts
        messages += [say("assistant", "Nine metres."), say("user", "Thank you.")]
    assert heads[0] == heads[1]
    assert "You help." in "".join(heads[0])
    assert "[trimtab: retrieved memory of " in "".join(heads[0])


@each_dialect
async def test_a_system_prompt_over_its_share_keeps_head_and_tail(dialect, client, upstream, start_proxy):
    """Only with `truncate_system`. All else of the body keeps its bytes."""
    messages = [say("system", RULES), say("user", "How deep is the harbour?")]
    body = orjson.dumps(dialect.write(messages, model="gpt-4o", metadata={"later": "x"}))
    plain = await start_proxy(*WINDOW, "defaults.sections={}")
    response, _ = await post(client, plain.url + dialect.path, body)
    assert (find_rules(response), upstream.requests[-1].body) == ([], body)
    proxy = await start_proxy(*WINDOW, "defaults.sections={}", "defaults.truncate_system=true")
    response, _ = await post(client, proxy.url + dialect.path, body)
    assert find_rules(response) == ["truncate_system"]
    assert 1000 < find_section(response, "system") <= 1400 < find_section(response, "system", "original")
    sent = dialect.read(upstream.chats[-1].json)
    [short] = ["".join(list_texts(message)) for message in sent if message["role"] == "system"]
    assert short.startswith("You help.\nRule 0: ")
    assert short.endswith("\nThe end.")
    assert "[trimtab: omitted " in short
    whole = orjson.dumps(RULES)
    assert upstream.requests[-1].body.replace(orjson.dumps(short), whole) == body
    text = (await (await client.get(proxy.url + "/metrics")).text()).splitlines()
    assert any(line.startswith("trimtab_tokens_saved_total{") and 'rule="truncate_system"' in line for line in text)


async def test_blocks_of_a_system_prompt_keep_their_cache_markers(client, upstream, start_proxy):
    """A block of the nonce and a long block with a marker. They are the same in each request.

    So thinking that newer models bind to what is before it still fits, and the server is not asked to drop any.
    """
    marker = {"type": "ephemeral"}
    body = {
        "model": "claude-opus-5-5",
        "system": [{"type": "text", "text": "v=1;"}, {"type": "text", "text": RULES, "cache_control": marker}],
        "thinking": {"type": "adaptive"},
        "messages": [
            say("user", "Go on."),
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]},
            say("user", "How deep?"),
        ],
        "max_tokens": 100,
    }
    proxy = await start_proxy(*WINDOW, "defaults.sections={}", "defaults.truncate_system=true")
    for more in ([], [say("assistant", "Nine metres."), say("user", "And now?")]):
        asked = body | {"messages": body["messages"] + more}
        response, _ = await post(client, proxy.url + "/v1/messages", asked)
        assert find_rules(response) == ["truncate_system"]
        sent = upstream.chats[-1].json
        first, second = sent["system"]
        assert first == body["system"][0]
        assert second["cache_control"] == marker
        assert len(second["text"]) < len(RULES) / 2
        assert sent["system"] == upstream.chats[0].json["system"]
        assert (sent["thinking"], sent["messages"]) == (asked["thinking"], asked["messages"])
