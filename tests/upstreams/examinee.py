"""An upstream's model that takes the exam of `trimtab evaluate`. It knows only the content of its prompt.

A fact is a sentence `The code of NAME is NUMBER.`
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web
from upstreams.recording import Recorded, completion, write_note

FACT = re.compile(r"The code of (\w+) is (\d+)\.")
Override = Callable[[str, Recorded], web.Response | str | None]


@dataclass
class Examinee:
    """Answers each kind of question as an honest model would.

    override: a function of the kind (`question`, `answer`, `grade`, `summary`) that may answer instead.
    told: the content of a summary.
    kinds: the kinds that were asked, oldest first.
    """

    override: Override = lambda _kind, _recorded: None
    told: str = "What was read so far."
    kinds: list[str] = field(default_factory=list)

    async def answer(self, recorded: Recorded, _: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        prompt = read_text(recorded.json["messages"][-1])
        kind = self._find_kind(recorded, prompt)
        self.kinds.append(kind)
        said = self.override(kind, recorded)
        if isinstance(said, web.Response):
            return said
        return completion(getattr(self, f"_{kind}")(recorded, prompt) if said is None else said, prompt_tokens=100)

    def _find_kind(self, recorded: Recorded, prompt: str) -> str:
        if recorded.asks_for_summary:
            return "summary"
        if prompt.startswith("You write an exam"):
            return "question"
        return "grade" if prompt.startswith("You grade") else "answer"

    def _summary(self, _: Recorded, __: str) -> str:
        return write_note(self.told)

    def _question(self, _: Recorded, prompt: str) -> str:
        wanted = re.search(r"Write (\d+) questions", prompt)
        facts = list(dict.fromkeys(FACT.findall(prompt)))[: int(wanted[1]) if wanted else 0]
        return "\n".join(write_question(name, number) for name, number in facts)

    def _answer(self, recorded: Recorded, prompt: str) -> str:
        asked = re.search(r"What is the code of (\w+)\?", prompt)
        known = dict(FACT.findall("\n".join(map(read_text, recorded.json["messages"][:-1]))))
        number = known.get(asked[1] if asked else "")
        return f"I read that it is {number}." if number else "NOT IN CONTEXT"

    def _grade(self, _: Recorded, prompt: str) -> str:
        right = re.search(r"RIGHT ANSWER\]\n(\d+)", prompt)
        answer = prompt.rpartition("TO BE GRADED]")[2]
        return '{"grade": 2}' if right and right[1] in answer else '{"grade": 0}'


def write_question(name: str, number: str) -> str:
    """A question about a fact, in the form that the prompt asks a model for."""
    quote = f"The code of {name} is {number}."
    return orjson.dumps({"question": f"What is the code of {name}?", "answer": number, "quote": quote}).decode()


def read_text(message: dict[str, Any]) -> str:
    """The text of a message."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def make_session(steps: int = 30, *, words: int = 300) -> bytes:
    """A session in which each step reads a file that contains a fact."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a careful assistant."},
        {"role": "user", "content": "Read all files, and tell what is odd."},
    ]
    for number in range(steps):
        arguments = orjson.dumps({"path": f"hall/{number}.txt"}).decode()
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
        filler = " ".join(f"word{number}x{index}" for index in range(words))
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": f"{filler}\nThe code of harbour{number} is {7000 + number}.\n{filler[:50]}",
            },
        ]
    return orjson.dumps({"model": "exam-model", "messages": messages})
