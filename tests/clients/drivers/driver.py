"""What the drivers of the Python clients share: jobs from the command line, an answer to each as a line of JSON.

A driver stands for somebody's program. It knows a base URL and a key, from the environment, and nothing of trimtab.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

BASE_URL = os.environ["OPENAI_BASE_URL"]
KEY = os.environ["OPENAI_API_KEY"]
QUESTION = "Read all parts of the harbour's log, one after the other, and say what is wrong."
SYSTEM = "You read the harbour's log."


@dataclass
class Answer:
    """What a client was told: the text, the tokens as reported, and the parts that its tool was asked for."""

    text: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    parts: list[int] = field(default_factory=list)


Job = Callable[[str], Awaitable[Answer]]


def describe_part(number: int) -> str:
    """The result of the tool."""
    lines = (f"Line {line} of part {number}: ship {number * line} lies at quay {line}, all well." for line in range(25))
    return "\n".join(lines)


def run(jobs: Mapping[str, Job], errors: type[Exception] | tuple[type[Exception], ...]) -> None:
    """Do each `kind=model` of the command line; an error that is none of the client's own ends the program."""

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
