"""A client that sends a reminder after each turn: the conversation goes on, and the reminders do not take its place."""

from typing import Any

import orjson
import pytest
from support.client import post, settle
from upstreams.strict import check_messages

SETTINGS = ("defaults.context_window=12000", "defaults.completion_reserve=1000")
TURNS = 60


def _write_turns(number: int) -> list[dict[str, Any]]:
    talk: list[dict[str, Any]] = [
        {"role": "system", "content": "You are careful."},
        {"role": "user", "content": "Mend the build of this project."},
    ]
    for turn in range(number):
        talk.append({"role": "assistant", "content": f"Answer {turn} of the model."})
        talk.append({"role": "user", "content": f"Question {turn} of the user?"})
        reminder = f"Reminder {turn}. " + "Never push to main. " * (30 + 20 * (turn % 3))
        talk.append({"role": "system", "content": reminder})
    return talk


@pytest.mark.parametrize("thinking", [None, {"type": "adaptive"}])
async def test_they_are_where_the_messages_api_takes_them(thinking, start_proxy, client, upstream):
    """After a user message and before an answer or the end, and never two in a row: a cut joins those that it keeps."""
    proxy, joined = await start_proxy(*SETTINGS), 0
    for turns in range(1, TURNS, 3):
        leading, *talk = _write_turns(turns)
        body = {"model": "claude-opus-4-8", "max_tokens": 500, "system": leading["content"], "messages": talk}
        body |= {"thinking": thinking} if thinking else {}
        response, answer = await post(client, proxy.url + "/v1/messages", orjson.dumps(body))
        assert response.status == 200, answer
        sent = upstream.chats[-1].json["messages"]
        assert check_messages(upstream.chats[-1].json) == []
        assert sent[-8:] == talk[-8:]
        roles = [one["role"] for one in sent]
        places = [at for at, role in enumerate(roles) if role == "system"]
        assert {roles[at - 1] for at in places} == {"user"}
        assert {roles[at + 1] for at in places if at + 1 < len(roles)} <= {"assistant"}
        await settle(proxy)
        joined += any(sent[at]["content"].count("Reminder") > 1 for at in places)
    assert len(sent) < len(talk) / 2
    assert (joined > 3) is (thinking is None)  # with thinking, none stays before a user message
