"""A truncated system prompt of the Messages API through a running proxy."""

import re

from support.client import post

WINDOW = ("defaults.context_window=9332", "defaults.completion_reserve=2332")
"""A limit of 7,000 tokens for a request without max tokens."""
RULES = "You help.\n" + "".join(f"Rule {number}: keep the harbour clear.\n" for number in range(600)) + "The end."


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
            {"role": "user", "content": "Go on."},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]},
            {"role": "user", "content": "How deep?"},
        ],
        "max_tokens": 100,
    }
    proxy = await start_proxy(*WINDOW, "defaults.sections={}", "defaults.truncate_system=true")
    for more in ([], [{"role": "assistant", "content": "Nine metres."}, {"role": "user", "content": "And now?"}]):
        asked = body | {"messages": body["messages"] + more}
        response, _ = await post(client, proxy.url + "/v1/messages", asked)
        assert re.findall(r"(\w+);saved", response.headers["x-trimtab-decisions"]) == ["truncate_system"]
        sent = upstream.chats[-1].json
        first, second = sent["system"]
        assert first == body["system"][0]
        assert second["cache_control"] == marker
        assert len(second["text"]) < len(RULES) / 2
        assert sent["system"] == upstream.chats[0].json["system"]
        assert (sent["thinking"], sent["messages"]) == (asked["thinking"], asked["messages"])
