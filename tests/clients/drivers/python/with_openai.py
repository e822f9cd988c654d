"""The OpenAI Python SDK on chat completions. With OPENAI_AZURE, its client for Azure: the path names the deployment."""

import os
from typing import Any

import openai
from driver import BASE_URL, KEY, PARAMETERS, QUESTION, SYSTEM, Answer, describe_part, run
from pydantic_core import from_json

if os.environ.get("OPENAI_AZURE"):
    AZURE = {"azure_endpoint": BASE_URL.removesuffix("/v1"), "api_version": "2024-10-21"}
    CLIENT = openai.AsyncAzureOpenAI(**AZURE, api_key=KEY, max_retries=0, timeout=30)
else:
    CLIENT = openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0, timeout=30)
TOOLS = [{"type": "function", "function": {"name": "read_part", "parameters": PARAMETERS}}]


async def ask(**request: Any) -> Any:
    """A completion, not streamed."""
    return await CLIENT.chat.completions.create(**request)


async def ask_streaming(**request: Any) -> Any:
    """A completion, joined from its stream."""
    async with CLIENT.chat.completions.stream(stream_options={"include_usage": True}, **request) as stream:
        return await stream.get_final_completion()


async def complete(model: str, ask: Any = ask) -> Answer:
    """One question and its answer."""
    done = await ask(model=model, messages=[{"role": "user", "content": "hi"}])
    usage = done.usage
    return Answer(done.choices[0].message.content, usage and usage.prompt_tokens, usage and usage.completion_tokens)


async def read_all(model: str, ask: Any = ask) -> Answer:
    """Ask with a tool until the model stops calling it."""
    answer = Answer()
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    while not answer.text:
        done = await ask(model=model, messages=messages, tools=TOOLS)
        message = done.choices[0].message
        messages.append(message.model_dump())
        for call in message.tool_calls or ():
            number = from_json(call.function.arguments)["number"]
            answer.parts.append(number)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": describe_part(number)})
        if not message.tool_calls:
            answer.text = message.content
    return answer


run(
    {
        "complete": complete,
        "stream": lambda model: complete(model, ask_streaming),
        "read": read_all,
        "read-stream": lambda model: read_all(model, ask_streaming),
    },
    openai.OpenAIError,
)
