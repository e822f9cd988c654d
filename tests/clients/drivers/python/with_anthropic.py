"""The Anthropic Python SDK, with thinking in every request with tools."""

from typing import Any

import anthropic
import httpx2
from driver import BASE_URL, KEY, PARAMETERS, QUESTION, SYSTEM, Answer, describe_part, run

CLIENT = anthropic.AsyncAnthropic(base_url=BASE_URL.removesuffix("/v1"), api_key=KEY, max_retries=0, timeout=30)
MAX_TOKENS = 2048
THINKING = {"type": "enabled", "budget_tokens": 1024}
TOOLS = [{"name": "read_part", "description": "Read a part of the log.", "input_schema": PARAMETERS}]


async def ask(**request: Any) -> Any:
    """A message, not streamed."""
    return await CLIENT.messages.create(max_tokens=MAX_TOKENS, **request)


async def ask_streaming(**request: Any) -> Any:
    """A message, joined from its stream."""
    async with CLIENT.messages.stream(max_tokens=MAX_TOKENS, **request) as stream:
        return await stream.get_final_message()


def join_text(message: Any) -> str:
    """The text of a message."""
    return "".join(block.text for block in message.content if block.type == "text")


async def complete(model: str, ask: Any = ask) -> Answer:
    """One question and its answer."""
    done = await ask(model=model, messages=[{"role": "user", "content": "hi"}])
    return Answer(join_text(done), done.usage.input_tokens, done.usage.output_tokens)


async def read_all(model: str, ask: Any = ask) -> Answer:
    """Ask with a tool until the model stops calling it."""
    answer = Answer()
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    while not answer.text:
        done = await ask(model=model, system=SYSTEM, messages=messages, tools=TOOLS, thinking=THINKING)
        messages.append({"role": "assistant", "content": done.content})
        results = []
        for call in (block for block in done.content if block.type == "tool_use"):
            answer.parts.append(call.input["number"])
            result = {"type": "tool_result", "tool_use_id": call.id, "content": describe_part(call.input["number"])}
            results.append(result)
        if results:
            messages.append({"role": "user", "content": results})
        else:
            answer.text = join_text(done)
    return answer


run(
    {
        "complete": complete,
        "stream": lambda model: complete(model, ask_streaming),
        "read": read_all,
        "read-stream": lambda model: read_all(model, ask_streaming),
    },
    (anthropic.AnthropicError, httpx2.HTTPError),  # HTTPError: a connection that broke during a stream
)
