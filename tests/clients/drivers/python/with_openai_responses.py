"""The OpenAI Python SDK on the Responses API.

OPENAI_STORE=false: each response has its reasoning encrypted, which the driver sends back.
"""

import os
from typing import Any

import openai
from driver import BASE_URL, KEY, PARAMETERS, QUESTION, SYSTEM, Answer, Berth, describe_part, run
from pydantic_core import from_json

CLIENT = openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0, timeout=30)
TOOLS = [{"type": "function", "name": "read_part", "parameters": PARAMETERS, "strict": True}]
KEPT: dict[str, Any] = {}
if os.environ.get("OPENAI_STORE") == "false":
    KEPT = {"store": False, "include": ["reasoning.encrypted_content"]}


async def ask(**request: Any) -> Any:
    """A response, not streamed."""
    return await CLIENT.responses.create(**request, **KEPT)


async def ask_streaming(**request: Any) -> Any:
    """A response, joined from its stream."""
    async with CLIENT.responses.stream(**request, **KEPT) as stream:
        return await stream.get_final_response()


async def complete(model: str, ask: Any = ask) -> Answer:
    """One question and its answer."""
    done = await ask(model=model, input="hi")
    return Answer(done.output_text, done.usage and done.usage.input_tokens, done.usage and done.usage.output_tokens)


async def parse(model: str) -> Answer:
    """An answer that the SDK reads into a class."""
    done = await CLIENT.responses.parse(model=model, input="Which berth?", text_format=Berth, **KEPT)
    return Answer(done.output_text, parts=[done.output_parsed.number])


async def read_all(model: str, ask: Any = ask) -> Answer:
    """Ask with a tool until the model stops calling it."""
    answer = Answer()
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    while not answer.text:
        done = await ask(model=model, instructions=SYSTEM, input=items, tools=TOOLS)
        items += done.output
        calls = [item for item in done.output if item.type == "function_call"]
        for call in calls:
            number = from_json(call.arguments)["number"]
            answer.parts.append(number)
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": describe_part(number)})
        if not calls:
            answer.text = done.output_text
    return answer


async def read_held(model: str) -> Answer:
    """Ask with a tool, and send only the results: the server holds what was before."""
    answer = Answer()
    done = await ask(model=model, instructions=SYSTEM, input=QUESTION, tools=TOOLS)
    while calls := [item for item in done.output if item.type == "function_call"]:
        numbers = [from_json(call.arguments)["number"] for call in calls]
        answer.parts += numbers
        results = [
            {"type": "function_call_output", "call_id": call.call_id, "output": describe_part(number)}
            for call, number in zip(calls, numbers, strict=True)
        ]
        done = await ask(model=model, input=results, tools=TOOLS, previous_response_id=done.id)
    answer.text = done.output_text
    return answer


run(
    {
        "complete": complete,
        "stream": lambda model: complete(model, ask_streaming),
        "parse": parse,
        "held": read_held,
        "read": read_all,
        "read-stream": lambda model: read_all(model, ask_streaming),
    },
    (openai.OpenAIError, RuntimeError),  # RuntimeError: a stream that ended too early
)
