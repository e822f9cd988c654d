"""Sessions with thinking that the model binds to what is before it, as Anthropic's newest models do.

Law: no request is refused. That thinking may be dropped is asked for from the first request on that sends something
otherwise than an earlier one did, and from then on always; never before. What the model thinks after a change is never
dropped until the next one.
"""

from itertools import pairwise
from typing import Any

import pytest
from support.dialects.agent_session import AgentSession, make_script
from support.dialects.agents import MESSAGES, Agent, Wire
from support.dialects.messages_validity import blocks_of, check_body
from upstreams.binding import BETA, BindingModel
from upstreams.recording import Recorded

MODEL = {"model": "claude-sonnet-5-5"}
COUNT = "/v1/messages/count_tokens"
SMALL = (
    "defaults.context_window=16000",
    "defaults.completion_reserve=2000",
    "defaults.max_tool_result_tokens=1500",
    "defaults.pin_instruction=true",
)
LARGE = ("defaults.context_window=400000", "defaults.max_tool_result_tokens=1500", "defaults.pin_instruction=true")


async def finish(session: AgentSession, *, turns: int = 100, stream: bool = False) -> None:
    """Play turns. Before each, the client asks how long the prompt is."""
    for _ in session.model.turns[session.model.played :][:turns]:
        session.agent.change = _to_count
        await session.send(COUNT)
        session.agent.change = lambda body: body
        await session.play(stream=stream)


def _to_count(body: Wire) -> Wire:
    return {name: value for name, value in body.items() if name not in {"max_tokens", "stream"}}


def find_changes(session: AgentSession) -> list[bool]:
    """For each request, whether it sends something otherwise than the request before it."""
    bodies = [_read_told(recorded) for _, recorded in session.sent]
    return [False, *(after[: len(before)] != before for before, after in pairwise(bodies))]


def _read_told(recorded: Recorded) -> list[Any]:
    body = recorded.json
    return [body.get("system"), body.get("tools"), *((one["role"], blocks_of(one)) for one in body["messages"])]


@pytest.mark.parametrize(
    ("strategy", "stream", "writes"),
    [("auto_compact", True, True), ("auto_compact", False, False), ("prune", True, True)],
)
async def test_cuts_and_prunes(strategy, stream, writes, open_session, start_proxy):
    """From the first on, thinking that no longer fits may be dropped; with summaries as with digests in their place."""
    proxy = await start_proxy(*SMALL, f"defaults.overflow_strategy={strategy}")
    session = open_session(proxy, BindingModel(make_script(24, thinks=True)), Agent(MESSAGES, more={**MODEL}))
    session.fails_summaries = not writes
    await finish(session, stream=stream)

    model, changes = session.model, find_changes(session)
    assert model.mismatched == model.invalid == []
    assert model.asked == [any(changes[: at + 1]) for at in range(len(changes))]
    assert (model.asked[0], model.asked[-1]) == (False, True)
    assert all(changes[at] or model.dropped[at] == model.dropped[at - 1] for at in range(1, len(changes)))
    assert max(model.dropped) > 0
    assert set(session.questions) <= {200}
    for (_, recorded), asked in zip(session.sent, model.asked, strict=True):
        assert (BETA in str(recorded.header("anthropic-beta"))) is asked
        assert check_body(recorded.json) == []


async def test_a_session_that_began_without_trimtab(open_session, start_proxy):
    """The first request is refused for what trimtab changes. The client does not see it, and later ones ask at once."""
    model = BindingModel(make_script(10, thinks=True))
    session = open_session(await start_proxy("defaults.mode=off"), model, Agent(MESSAGES, more={**MODEL}))
    await finish(session, turns=6)
    session.proxy = await start_proxy(*LARGE)
    await finish(session)
    assert [one.path for one in model.mismatched] == [COUNT]
    assert model.asked == [False] * 6 + [True] * 4


async def test_an_upstream_that_does_not_know_the_setting(open_session, start_proxy):
    """The client does not see that it is refused, and it is not sent again. Questions for summaries go without, too."""
    model = BindingModel(make_script(24, thinks=True), binds=False, knows_setting=False)
    session = open_session(await start_proxy(*SMALL), model, Agent(MESSAGES, more={**MODEL}))
    await finish(session)
    assert not any(model.asked)
    assert len(model.unknown) == 1
    assert any(find_changes(session))
    assert set(session.questions) == {200}
