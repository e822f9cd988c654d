"""Loops end: through the running proxy in each dialect, with upstreams that are strict."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from support import checker
from support.client import post, settle
from support.dialects import messages_checker, responses_checker
from support.dialects.to_messages import to_messages
from support.dialects.to_responses import to_responses

Wire = dict[str, Any]
Write = Callable[[list[Wire]], tuple[str, Wire]]

SETTINGS = (
    "defaults.context_window=8000",
    "defaults.completion_reserve=1000",
    "defaults.max_tool_result_tokens=4000",
    "defaults.high_water=0.8",
    "defaults.low_water=0.4",
)
WORDS = "the harbour pilot sounded nine metres of water at low tide near the north quay and wrote it down"
TOOLS = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]
BEGUN: list[Wire] = [
    {"role": "system", "content": "You are a coding agent."},
    {"role": "user", "content": "Mend the harbour."},
]


def _in_chat(messages: list[Wire]) -> Wire:
    return {"model": "m", "messages": messages, "tools": TOOLS}


def _in_responses(messages: list[Wire]) -> Wire:
    return to_responses({"messages": messages, "tools": TOOLS})


def _in_messages(messages: list[Wire]) -> Wire:
    return to_messages({"messages": messages, "tools": TOOLS}) | {"max_tokens": 1000}


WRITERS = {
    "chat": ("/v1/chat/completions", _in_chat, checker.check_request),
    "responses": ("/v1/responses", _in_responses, responses_checker.check_request),
    "messages": ("/v1/messages", _in_messages, messages_checker.check_request),
}
each_dialect = pytest.mark.parametrize("dialect", WRITERS)


def write_file(name: str, lines: int) -> str:
    """A file's text of about 25 tokens a line."""
    return "\n".join(f"{name}, line {line}: {WORDS}" for line in range(lines))


def read_file(step: int, name: str, lines: int) -> list[Wire]:
    """A step of the agent."""
    call = {"id": f"call_{step}", "type": "function"}
    asked = {"name": "read_file", "arguments": orjson.dumps({"path": name}).decode()}
    return [
        {"role": "assistant", "content": f"I read {name}.", "tool_calls": [call | {"function": asked}]},
        {"role": "tool", "tool_call_id": f"call_{step}", "content": write_file(name, lines)},
    ]


class Looping:
    """An agent that reads one file whenever it does not see its last line, and else another file."""

    def __init__(self, lines: int) -> None:
        self.lines = lines
        self.messages = list(BEGUN)
        self.reads = 0
        self.wanted = write_file("plan.md", lines).rpartition("\n")[2].encode()

    def go_on(self, step: int, sent: bytes, *, talks: bool) -> None:
        """The next step, after what was forwarded; with a short talk behind it if `talks`."""
        if self.wanted in sent:
            self.messages += read_file(step, f"log_{step}.md", 24)
        else:
            self.reads += 1
            self.messages += read_file(step, "plan.md", self.lines)
        if talks:
            self.messages.append({"role": "assistant", "content": f"So much for step {step}."})
            self.messages.append({"role": "user", "content": f"Go on with step {step + 1}."})


@each_dialect
@pytest.mark.parametrize("strategy", ["auto_compact", "prune"])
@pytest.mark.parametrize("talks", [False, True], ids=["calls", "talks"])
async def test_what_is_read_again_and_again_stays(dialect, strategy, talks, client, upstream, start_proxy):
    """After the fourth reading it is always there. The upstream refuses nothing, and the session goes on."""
    path, convert, check = WRITERS[dialect]
    proxy = await start_proxy(*SETTINGS, f"defaults.overflow_strategy={strategy}")
    agent = Looping(40)
    cuts = set()
    for step in range(60):
        body = orjson.dumps(convert(agent.messages))
        response, answer = await post(client, proxy.url + path, body)
        assert response.status == 200, answer
        sent = upstream.chats[-1]
        assert check(body, sent.body) == []
        cuts.add(response.headers.get("x-trimtab-decisions", ""))
        agent.go_on(step, sent.body, talks=talks)
        await settle(proxy)
    assert len(cuts) > 5
    assert agent.reads == 4
