"""OpenAI's Agents SDK, on chat completions. With OPENAI_RESPONSES, on the Responses API, its default."""

import os
from typing import Any

import openai
from agents import (
    Agent,
    ModelSettings,
    Runner,
    function_tool,
    set_default_openai_api,
    set_default_openai_client,
    set_tracing_disabled,
)
from agents.exceptions import AgentsException
from driver import BASE_URL, KEY, QUESTION, SYSTEM, Answer, describe_part, run

CLIENT = openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0, timeout=30)
TURNS = 200

set_tracing_disabled(disabled=True)
set_default_openai_client(CLIENT)
if "OPENAI_RESPONSES" not in os.environ:
    set_default_openai_api("chat_completions")


def make_agent(model: str, **more: Any) -> Agent:
    """An agent with usage in streams: the SDK requests it by default only from OpenAI's own URL."""
    return Agent(name="reader", model=model, model_settings=ModelSettings(include_usage=True), **more)


async def ask(agent: Agent, question: str) -> Any:
    """A run of the agent."""
    return await Runner.run(agent, question, max_turns=TURNS)


async def ask_streaming(agent: Agent, question: str) -> Any:
    """A run of the agent, streamed."""
    running = Runner.run_streamed(agent, question, max_turns=TURNS)
    async for _ in running.stream_events():
        pass
    return running


async def complete(model: str, ask: Any = ask) -> Answer:
    """One question and its answer."""
    done = await ask(make_agent(model), "hi")
    usage = done.context_wrapper.usage
    return Answer(done.final_output, usage.input_tokens, usage.output_tokens)


async def read_all(model: str, ask: Any = ask) -> Answer:
    """A run that calls the tool until the model stops calling it."""
    parts = []

    @function_tool
    async def read_part(number: int) -> str:
        """Read a part of the log."""
        parts.append(number)
        return describe_part(number)

    done = await ask(make_agent(model, tools=[read_part], instructions=SYSTEM), QUESTION)
    return Answer(done.final_output, parts=parts)


run(
    {
        "complete": complete,
        "stream": lambda model: complete(model, ask_streaming),
        "read": read_all,
        "read-stream": lambda model: read_all(model, ask_streaming),
    },
    (openai.OpenAIError, AgentsException),
)
