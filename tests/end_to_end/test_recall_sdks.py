"""Recall with the OpenAI SDK: its own reading of streams accepts the answer of several rounds as one.

tests/clients has clients that are installed apart.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from end_to_end.test_recall import FACT, QUESTION, make_talk
from end_to_end.test_recall_tool import ASK, FOUND, RUN, TOOL, each_form, script
from openai import AsyncOpenAI
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.responses import RESPONSES
from upstreams.scripted import Call, Turn

BESIDE = Turn("I run it. ", (Call("run", {"n": 1}), ASK))


@pytest.fixture
async def sdk(start_proxy) -> AsyncIterator[AsyncOpenAI]:
    proxy = await start_proxy(*TOOL)
    async with AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="sk-sdk", max_retries=0) as client:
        yield client


async def ask_chat(sdk: AsyncOpenAI, messages: Any, *, stream: bool) -> tuple[str, list[Any], dict[str, Any]]:
    """The text of an answer, its calls, and the message to send back."""
    asked: Any = {"model": "m", "messages": messages, "tools": [RUN]}
    if stream:
        async with sdk.chat.completions.stream(**asked) as events:
            async for _ in events:
                pass
            said = (await events.get_final_completion()).choices[0]
    else:
        said = (await sdk.chat.completions.create(**asked)).choices[0]
    calls = said.message.tool_calls or []
    assert said.finish_reason == ("tool_calls" if calls else "stop")
    return said.message.content or "", list(calls), said.message.model_dump(exclude_none=True, exclude={"parsed"})


@each_form
async def test_chat_completions(stream, sdk, upstream):
    """A call of ours; one beside the client's own; and the next request, which has what that one found."""
    script(upstream, CHAT, Turn("Let me look. ", (ASK,)), BESIDE, FOUND)
    messages = [*make_talk(), QUESTION]
    text, calls, said = await ask_chat(sdk, messages, stream=stream)
    assert (text, [call.function.name for call in calls]) == ("Let me look. I run it. ", ["run"])
    results = [{"role": "tool", "tool_call_id": call.id, "content": "ran"} for call in calls]
    text, calls, _ = await ask_chat(sdk, [*messages, said, *results], stream=stream)
    assert (text, calls) == (FOUND.text, [])
    assert FACT in CHAT.read_results(upstream.chats[-1].json)[-1]


async def ask_responses(sdk: AsyncOpenAI, items: Any, *, stream: bool) -> Any:
    tool = {"type": "function", "name": "run", "parameters": {"type": "object", "properties": {}}, "strict": False}
    asked: Any = {"model": "m", "input": items, "tools": [tool], "store": False}
    if not stream:
        return await sdk.responses.create(**asked)
    async with sdk.responses.stream(**asked) as events:
        async for _ in events:
            pass
        return await events.get_final_response()


@each_form
async def test_responses(stream, sdk, upstream):
    script(upstream, RESPONSES, Turn("Let me look. ", (ASK,), thought="Hm."), BESIDE, FOUND)
    items = RESPONSES.write([*make_talk(), QUESTION])["input"]
    said = await ask_responses(sdk, items, stream=stream)
    assert said.output_text == "Let me look. I run it. "
    calls = [item for item in said.output if item.type == "function_call"]
    assert [call.name for call in calls] == ["run"]
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "ran"} for call in calls]
    sent = [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in said.output]
    said = await ask_responses(sdk, [*items, *sent, *results], stream=stream)
    assert said.output_text == FOUND.text
    assert FACT in RESPONSES.read_results(upstream.chats[-1].json)[-1]
