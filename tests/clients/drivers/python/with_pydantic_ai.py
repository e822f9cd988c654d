"""Pydantic AI's agent."""

from typing import Any

from driver import BASE_URL, KEY, QUESTION, SYSTEM, Answer, describe_part, run
from openai import AsyncOpenAI
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

CLIENT = AsyncOpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0, timeout=30)
LIMITS = UsageLimits(request_limit=200)


def make_agent(model: str, **more: Any) -> Agent:
    """An agent that uses the base URL."""
    return Agent(OpenAIChatModel(model, provider=OpenAIProvider(openai_client=CLIENT)), **more)


async def ask(agent: Agent, question: str) -> Answer:
    """A run of the agent."""
    done = await agent.run(question, usage_limits=LIMITS)
    return Answer(done.output, done.usage.input_tokens, done.usage.output_tokens)


async def ask_streaming(agent: Agent, question: str) -> Answer:
    """A run of the agent, streamed."""

    async def listen(_context: Any, events: Any) -> None:
        async for _ in events:
            pass

    done = await agent.run(question, usage_limits=LIMITS, event_stream_handler=listen)
    return Answer(done.output, done.usage.input_tokens, done.usage.output_tokens)


async def complete(model: str, ask: Any = ask) -> Answer:
    """One question and its answer."""
    return await ask(make_agent(model), "hi")


async def read_all(model: str, ask: Any = ask) -> Answer:
    """A run that calls the tool until the model stops calling it."""
    parts = []

    async def read_part(number: int) -> str:
        """Read a part of the log."""
        parts.append(number)
        return describe_part(number)

    agent = make_agent(model, tools=[read_part], system_prompt=SYSTEM, instructions="Be brief.")
    answer = await ask(agent, QUESTION)
    return Answer(answer.text, parts=parts)


run(
    {
        "complete": complete,
        "stream": lambda model: complete(model, ask_streaming),
        "read": read_all,
        "read-stream": lambda model: read_all(model, ask_streaming),
    },
    AgentRunError,
)
