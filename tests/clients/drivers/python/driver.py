"""The common part of the drivers for Python clients: jobs from the command line, and a JSON line for each answer.

A driver plays a user's program. It gets a base URL and a key from the environment, and does not know trimtab.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

BASE_URL = os.environ["OPENAI_BASE_URL"]
KEY = os.environ["OPENAI_API_KEY"]
QUESTION = "Read all parts of the harbour's log, one after the other, and say what is wrong."
SYSTEM = "You read the harbour's log."
PARAMETERS = {
    "type": "object",
    "properties": {"number": {"type": "integer"}},
    "required": ["number"],
    "additionalProperties": False,
}
"""The schema of the tool `read_part`."""


@dataclass
class Answer:
    """What a client received: the text, the reported tokens, and the parts that the model asked its tool for."""

    text: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    parts: list[int] = field(default_factory=list)


class Berth(BaseModel):
    """The form of a structured answer."""

    ship: str
    number: int


Job = Callable[[str], Awaitable[Answer]]


def describe_part(number: int) -> str:
    """The result of the tool."""
    lines = (f"Line {line} of part {number}: ship {number * line} lies at quay {line}, all well." for line in range(25))
    return "\n".join(lines)


def run(jobs: Mapping[str, Job], errors: type[Exception] | tuple[type[Exception], ...]) -> None:
    """Do each job `kind=model` of the command line. An error that is not one of `errors` ends the program."""

    async def run_all() -> None:
        for argument in sys.argv[1:]:
            kind, _, model = argument.partition("=")
            said: dict[str, Any] = {"error": None}
            try:
                said |= vars(await jobs[kind](model))
            except errors as error:
                said["error"] = type(error).__name__
                said["status"] = getattr(error, "status_code", None)
                said["message"] = str(error)
            sys.stdout.write(to_json(said).decode() + "\n")
            sys.stdout.flush()

    asyncio.run(run_all())
