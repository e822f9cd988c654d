"""A client that sends a reminder after each turn: the conversation goes on, and the reminders do not take its place."""

from typing import Any

import orjson
import pytest
from support.client import post, settle

SETTINGS = ("defaults.context_window=8000", "defaults.completion_reserve=1000")
TURNS = 60


def _write_turns(number: int) -> list[dict[str, Any]]:
    talk: list[dict[str, Any]] = [
        {"role": "system", "content": "You are careful."},
        {"role": "user", "content": "Mend the build of this project."},
    ]
    for turn in range(number):
        talk.append({"role": "assistant", "content": f"Answer {turn} of the model."})
        talk.append({"role": "user", "content": f"Question {turn} of the user?"})
        talk.append(
            {"role": "system", "content": f"Reminder {turn % 3}. " + "Never push to main. " * (30 + 20 * (turn % 3))}
        )
    return talk


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_sixty_reminders_leave_the_last_three_turns(path, start_proxy, client, upstream):
    """They are forwarded verbatim; no request is refused; the leading message stays."""
    proxy = await start_proxy(*SETTINGS)
    member = "messages" if "chat" in path else "input"
    for turns in range(1, TURNS, 3):
        talk = _write_turns(turns)
        response, answer = await post(client, proxy.url + path, orjson.dumps({"model": "m", member: talk}))
        assert response.status == 200, answer
        sent = upstream.chats[-1].json[member]
        assert sent[0] == talk[0]
        assert sent[-8:] == talk[-8:]
        await settle(proxy)
    assert len(sent) < len(talk) / 2
