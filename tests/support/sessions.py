"""Agent sessions: generated ones, those in `tests/data`, and recorded ones if they are available."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

OWN_DATA = Path(__file__).parents[1] / "data"
DATA = Path(__file__).parents[3] / "shared" / "data"

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the recorded data (../shared/data) is not here")


def recorded_files(folder: str) -> list[Path]:
    """The JSONL files of a kind: our own, which a clone has, and those of the recorded data if they are here."""
    return [path for data in (OWN_DATA, DATA) for path in sorted((data / folder).glob("*.jsonl"))]


def read_rows(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSONL file."""
    with file.open("rb") as lines:
        for line in lines:
            yield orjson.loads(line)


def requests_of(session: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """The transcripts that a client sends: everything before each assistant turn, oldest first.

    There was no request between two assistant messages in a row: the client made both from one response.
    """
    messages = session["messages"]
    for index, message in enumerate(messages):
        if index and message["role"] == "assistant" and messages[index - 1]["role"] != "assistant":
            yield messages[:index]


def make_session(steps: int, *, result_words: int = 400, system: str = "You are a coding agent.") -> dict[str, Any]:
    """A generated session: one task, then `steps` calls with their results."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": system},
        {"role": "user", "content": "Find out why the build of the harbour module fails, and mend it."},
    ]
    for number in range(steps):
        call_id = f"call_{number}"
        arguments = orjson.dumps({"path": f"src/harbour/part_{number}.py", "depth": number}).decode()
        call = {"id": call_id, "type": "function", "function": {"name": "read_file", "arguments": arguments}}
        messages.append({"role": "assistant", "content": f"I will look at part {number}.", "tool_calls": [call]})
        words = " ".join(f"word{number}x{index}" for index in range(result_words // 4))
        messages.append({"role": "tool", "tool_call_id": call_id, "content": f"part {number}\n{words}\nend {number}"})
    messages.append({"role": "assistant", "content": "It is mended."})
    function = {"name": "read_file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}
    return {"id": "made", "messages": messages, "tools": [{"type": "function", "function": function}]}
