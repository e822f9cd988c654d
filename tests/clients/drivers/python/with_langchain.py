"""LangChain's ChatOpenAI, on chat completions. With OPENAI_RESPONSES, on the Responses API."""

import os
from typing import Any

import openai
from driver import BASE_URL, KEY, QUESTION, SYSTEM, Answer, describe_part, run
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def read_part(number: int) -> str:
    """Read a part of the log."""
    return describe_part(number)


def make_client(model: str) -> Any:
    """A client with usage in streams: LangChain requests it by default only from OpenAI's own URL."""
    settings = {"base_url": BASE_URL, "api_key": KEY, "max_retries": 0, "timeout": 30, "stream_usage": True}
    return ChatOpenAI(model=model, use_responses_api="OPENAI_RESPONSES" in os.environ, **settings)


async def ask(client: Any, messages: list[Any]) -> Any:
    """A response, not streamed."""
    return await client.ainvoke(messages)


async def ask_streaming(client: Any, messages: list[Any]) -> Any:
    """A response, joined from its stream."""
    whole = None
    async for chunk in client.astream(messages):
        whole = chunk if whole is None else whole + chunk
    return whole


async def complete(model: str, ask: Any = ask) -> Answer:
    """One question and its answer."""
    message = await ask(make_client(model), [("user", "hi")])
    usage = message.usage_metadata or {}
    return Answer(message.text, usage.get("input_tokens"), usage.get("output_tokens"))


async def read_all(model: str, ask: Any = ask) -> Answer:
    """Ask with a tool until the model stops calling it."""
    client = make_client(model).bind_tools([read_part])
    messages: list[Any] = [("system", SYSTEM), ("user", QUESTION)]
    answer = Answer()
    while not answer.text:
        message = await ask(client, messages)
        messages.append(message)
        for call in message.tool_calls:
            answer.parts.append(call["args"]["number"])
            messages.append(await read_part.ainvoke(call))
        if not message.tool_calls:
            answer.text = message.text
    return answer


run(
    {
        "complete": complete,
        "stream": lambda model: complete(model, ask_streaming),
        "read": read_all,
        "read-stream": lambda model: read_all(model, ask_streaming),
    },
    (openai.OpenAIError, ValueError),  # ValueError: an error in a stream of the Responses API
)
