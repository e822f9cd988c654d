"""Loops end: through the running proxy in each dialect, with upstreams that are strict."""

from typing import Any

import orjson
import pytest
from support import checker
from support.client import post, settle
from support.dialects import messages_checker, responses_checker
from support.dialects.to_messages import to_messages
from support.dialects.to_responses import to_responses
from upstreams.scripted import refuse

Wire = dict[str, Any]

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


@pytest.mark.parametrize(
    ("dialect", "strategy", "talks"),
    [("chat", "prune", True), ("responses", "auto_compact", True), ("messages", "prune", False)],
)
async def test_what_is_read_again_and_again_stays(dialect, strategy, talks, client, upstream, start_proxy):
    """After the fourth reading it is always there. The upstream refuses nothing, and the session goes on.

    That it stays whatever the strategy and the steps is a law of the rules: tests/rules/laws/test_loop_laws.py.
    """
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


async def play(
    proxy, client, upstream, dialect: str, *, steps: int = 40, head: list[Wire] = BEGUN
) -> tuple[int, set[str]]:
    """A session of as many different files: how often what was forwarded did not begin as before, and the rules."""
    path, convert, check = WRITERS[dialect]
    member = "input" if dialect == "responses" else "messages"
    messages, moves, rules, before = list(head), 0, set[str](), list[Wire]()
    for step in range(steps):
        body = orjson.dumps(convert(messages))
        response, answer = await post(client, proxy.url + path, body)
        assert response.status == 200, answer
        sent = upstream.chats[-1]
        assert check(body, sent.body) == []
        elements = sent.json[member]
        moves += elements[: len(before)] != before
        before = elements
        rules |= set(response.headers.get("x-trimtab-decisions", "").split(", "))
        messages += read_file(step, f"log_{step}.md", 12)
        await settle(proxy)
    return moves, {one.partition(";")[0] for one in rules}


@each_dialect
async def test_a_summariser_with_a_smaller_window_is_asked_a_few_times(dialect, client, upstream, start_proxy):
    """It refuses each question. A digest stands in, and the session goes on."""
    plain = upstream.answer

    async def refuse_questions(recorded, request):
        if recorded.asks_for_summary:
            return refuse(len(recorded.body) // 4, 1000)
        return await plain(recorded, request)

    upstream.answer = refuse_questions
    proxy = await start_proxy(*SETTINGS, "defaults.overflow_strategy=summarize")
    moves, rules = await play(proxy, client, upstream, dialect)
    assert "digest" in rules
    assert "summarise" not in rules
    assert 0 < len(upstream.summaries) <= 3 * moves
