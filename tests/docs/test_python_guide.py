"""docs/guides/python.md: the adapter of the openai client works with the real package.

The model calls a tool until a session has far more than its window; the agent's own history must stay whole.
"""

import re
from pathlib import Path
from typing import Any

from openai import OpenAI
from openai.types.chat import ChatCompletion

from trimtab import Compactor, make_policy

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "python.md"
STEPS = 30


def _read(number: int) -> str:
    """What the tool returns; no two of them are alike."""
    return f"file {number}\n" + "\n".join(f"line {line} of it is {line * (number + 7)}" for line in range(100))


def _complete(number: int) -> ChatCompletion:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": f'{{"n": {number}}}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    message = message if number <= STEPS else {"role": "assistant", "content": "done"}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    told = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return ChatCompletion.model_validate(told)


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
    section = PAGE.read_text("utf-8").split("\n## The openai client\n")[1].split("\n## ")[0]
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0], names)  # noqa: S102 - our own words
    names["compactor"] = Compactor(make_policy(context_window=16_000), model="gpt-4o")
    messages: list[Any] = [{"role": "user", "content": "Read them."}]
    for number in range(STEPS + 1):
        answer = names["complete"](Fake, messages, model="m", tools=[]).choices[0].message
        messages.append(answer)
        if answer.tool_calls:
            messages.append({"role": "tool", "tool_call_id": f"c{number + 1}", "content": _read(number)})

    last = str(seen[-1])
    assert (messages[-1].content, len(seen)) == ("done", STEPS + 1)
    assert max(map(len, seen)) < len(messages)
    assert len(last) < 16_000 * 4
    assert "earlier messages" in last
    assert "Read them." in last
