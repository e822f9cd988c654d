"""LiteLLM's synchronous SDK, as agents use it.

Its asynchronous functions treat the end of a connection as the end of the response, so they do not see a broken stream.
"""

from typing import Any

import litellm
import openai
from driver import BASE_URL, KEY, PARAMETERS, QUESTION, SYSTEM, Answer, describe_part, run
from pydantic_core import from_json

TOOLS = [{"type": "function", "function": {"name": "read_part", "parameters": PARAMETERS}}]


async def ask(model: str, **request: Any) -> Any:
    """A completion, not streamed."""
    return litellm.completion(
        model=f"openai/{model}", api_base=BASE_URL, api_key=KEY, max_retries=0, timeout=30, **request
    )


async def ask_streaming(**request: Any) -> Any:
    """A completion, joined from its stream."""
    stream = await ask(stream=True, stream_options={"include_usage": True}, **request)
    return litellm.stream_chunk_builder(list(stream))


async def complete(model: str, ask: Any = ask) -> Answer:
    """One question and its answer."""
    done = await ask(model=model, messages=[{"role": "user", "content": "hi"}])
    return Answer(done.choices[0].message.content, done.usage.prompt_tokens, done.usage.completion_tokens)


async def read_all(model: str, ask: Any = ask) -> Answer:
    """Ask with a tool until the model stops calling it."""
    answer = Answer()
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    while not answer.text:
        done = await ask(model=model, messages=list(messages), tools=TOOLS)
        message = done.choices[0].message
        messages.append(message)
        for call in message.tool_calls or ():
            number = from_json(call.function.arguments)["number"]
            answer.parts.append(number)
            result = {"role": "tool", "tool_call_id": call.id, "name": "read_part", "content": describe_part(number)}
            messages.append(result)
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
    openai.OpenAIError,  # the base class of LiteLLM's errors
)
