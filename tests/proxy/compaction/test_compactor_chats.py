"""How many of a long chat's facts are forwarded if no model writes a summary."""

import orjson
import pytest
from support.chats import LANGUAGES, count_facts, make_chat

from trimtab.proxy.compaction import load_compactor, read_request
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.rules.policy import Prices

TURNS = 150


@pytest.mark.parametrize("language", LANGUAGES)
def test_half_of_the_facts_of_a_long_chat_are_forwarded(language: str) -> None:
    """One fact is told in each turn. Facts of the user and of the assistant are kept, at any length.

    Before digests had statements, 36 of 150 facts were forwarded, and ten of them were the assistant's.
    """
    policy = PolicyConfig(context_window=8000).to_policy(Prices())
    messages, facts = make_chat(LANGUAGES[language], turns=TURNS)
    compactor = load_compactor("gpt-4o")
    for stop in range(len(messages) - 1, len(messages) - 33, -16):
        body = orjson.dumps({"model": "gpt-4o", "messages": messages[:stop]})
        planned = compactor.plan(read_request(body), policy)
        sent = compactor.apply(planned, None)
        users, assistants = count_facts(facts, write(orjson.loads(sent.body)["messages"]))
        assert sent.sent_tokens < sent.original_tokens / 2
        assert users + assistants >= TURNS / 2
        assert min(users, assistants) >= TURNS / 6


def write(messages: list[dict[str, object]]) -> str:
    """The texts of messages as a reader sees them, with their line breaks."""
    contents = (message["content"] for message in messages)
    texts = (
        content if isinstance(content, str) else "\n".join(part["text"] for part in content) for content in contents
    )
    return "\n".join(texts)
