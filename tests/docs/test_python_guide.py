"""docs/guides/python.md: each adapter works with the real package, if that is installed.

The model calls a tool until a session has far more than its window; the agent's own history must stay whole.
"""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion

from trimtab import Compactor, make_policy

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "python.md"
STEPS = 30


def _read(number: int) -> str:
    """What the tool returns; no two of them are alike."""
    return f"file {number}\n" + "\n".join(f"line {line} of it is {line * (number + 7)}" for line in range(100))


def _load(heading: str, dialect: str = "chat") -> dict[str, Any]:
    """The names of the adapter below a heading, with a compactor for a small window."""
    section = PAGE.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - our own words
    assert isinstance(names["compactor"], Compactor)
    small = Compactor(make_policy(context_window=16_000), model="gpt-4o", dialect=dialect)
    names["compactor"] = small
    return names


def _check(numbers: list[int], sent: list[str], history: int) -> None:
    """numbers: of messages in each request. sent: the text of each. history: messages that the agent still has."""
    assert len(numbers) == STEPS + 1
    assert max(numbers) < history
    assert len(sent[-1]) < 16_000 * 4
    assert "earlier messages" in sent[-1]
    assert "Read them." in sent[-1]


def test_the_client_of_openai() -> None:
    seen: list[list[Any]] = []

    class Fake:
        """The part of a client that the adapter calls."""

        class chat:  # noqa: N801
            class completions:  # noqa: N801
                @staticmethod
                def create(messages, **_):
                    seen.append(messages)
                    return _complete(len(seen))

    assert hasattr(OpenAI(api_key="x").chat.completions, "create")
    complete, messages = _load("The openai client")["complete"], [{"role": "user", "content": "Read them."}]
    for number in range(STEPS + 1):
        answer = complete(Fake, messages, model="m", tools=[]).choices[0].message
        messages.append(answer)
        if answer.tool_calls:
            messages.append({"role": "tool", "tool_call_id": f"c{number + 1}", "content": _read(number)})

    assert messages[-1].content == "done"
    _check([len(each) for each in seen], [str(each) for each in seen], len(messages))


def _complete(number: int) -> ChatCompletion:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": f'{{"n": {number}}}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    message = message if number <= STEPS else {"role": "assistant", "content": "done"}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return ChatCompletion.model_validate(
        {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    )


def test_langchain() -> None:
    pytest.importorskip("langchain.agents.middleware", reason="langchain 1 is not installed")
    from langchain.agents import create_agent  # noqa: PLC0415 - another project's, which may be missing
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel  # noqa: PLC0415
    from langchain_core.messages import AIMessage  # noqa: PLC0415
    from langchain_core.tools import tool  # noqa: PLC0415

    seen: list[list[Any]] = []

    class Model(GenericFakeChatModel):
        def bind_tools(self, _tools, **_):
            return self

        def _generate(self, messages, *args, **kwargs):
            seen.append(messages)
            return super()._generate(messages, *args, **kwargs)

    def answers():
        for number in range(STEPS):
            yield AIMessage("", tool_calls=[{"name": "read", "args": {"n": number}, "id": f"c{number}"}])
        yield AIMessage("done")

    @tool
    def read(n: int) -> str:
        """Read a file."""
        return _read(n)

    middleware = [_load("LangChain")["compaction"]]
    agent = create_agent(Model(messages=answers()), tools=[read], system_prompt="Be brief.", middleware=middleware)
    asked = {"messages": [{"role": "user", "content": "Read them."}]}
    messages = agent.invoke(asked, {"recursion_limit": 200})["messages"]

    assert messages[-1].content == "done"
    assert seen[-1][0].content == "Be brief."
    assert seen[-1][-1] in messages  # the agent's own object
    _check([len(each) for each in seen], [str(each) for each in seen], len(messages))


async def test_pydantic_ai() -> None:
    pytest.importorskip("pydantic_ai.capabilities", reason="pydantic-ai 2 is not installed")
    from pydantic_ai import Agent  # noqa: PLC0415
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart  # noqa: PLC0415
    from pydantic_ai.models.function import FunctionModel  # noqa: PLC0415

    seen: list[list[Any]] = []

    def answer(messages, _):
        seen.append(messages)
        number = len(seen)
        call = ToolCallPart("read", {"n": number}, tool_call_id=f"c{number}")
        return ModelResponse([call if number <= STEPS else TextPart("done")])

    compaction = _load("pydantic-ai")["Compaction"]()
    agent = Agent(FunctionModel(answer), instructions="Be brief.", capabilities=[compaction])

    @agent.tool_plain
    def read(n: int) -> str:
        return _read(n)

    result = await agent.run("Read them.")

    assert result.output == "done"
    assert seen[-1][-1].instructions == "Be brief."
    assert seen[-1][-1].parts[0].content.startswith(f"file {STEPS}")
    _check([len(each) for each in seen], [str(each) for each in seen], len(result.all_messages()))


async def test_openai_agents() -> None:
    pytest.importorskip("agents.run", reason="openai-agents is not installed")
    from agents import Agent, RunConfig, Runner, function_tool  # noqa: PLC0415
    from agents.items import ModelResponse  # noqa: PLC0415
    from agents.models.interface import Model  # noqa: PLC0415
    from agents.usage import Usage  # noqa: PLC0415
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage  # noqa: PLC0415

    seen: list[list[Any]] = []

    class Fake(Model):
        async def get_response(self, *_, **given):
            seen.append(given["input"])
            number = len(seen)
            call = ResponseFunctionToolCall(
                type="function_call", call_id=f"c{number}", name="read", arguments=f'{{"n": {number}}}'
            )
            text = {"type": "output_text", "text": "done", "annotations": []}
            told = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
            output = call if number <= STEPS else ResponseOutputMessage.model_validate(told)
            return ModelResponse(output=[output], usage=Usage(), response_id=None)

        def stream_response(self, *_, **__):
            raise NotImplementedError

    @function_tool
    def read(n: int) -> str:
        return _read(n)

    config = RunConfig(
        call_model_input_filter=_load("openai-agents", "responses")["compact_input"], tracing_disabled=True
    )
    agent = Agent(name="reader", instructions="Be brief.", model=Fake(), tools=[read])
    result = await Runner.run(agent, "Read them.", max_turns=99, run_config=config)

    assert result.final_output == "done"
    assert orjson.dumps(seen[-1][-1]).startswith(b"{")
    _check([len(each) for each in seen], [str(each) for each in seen], len(result.to_input_list()))
