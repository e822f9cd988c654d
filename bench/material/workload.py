"""The sessions that are replayed: recorded ones, or long made-up ones.

Law: a session's requests are its prefixes: request i + 1 begins with the bytes of request i. Seeded: the same call
makes the same sessions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from bench.material.transcript import build_body

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "conversations"
MODEL = "recorded"
"""A model of no known family: the upstream of the bench counts tools as JSON, which OpenAI's models do not."""
NAME_CHARS = 40
_OWN_KILOBYTES = (60, 90, 140, 200, 280, 400, 560, 800)
_OWN_STEP_BYTES = 2200


@dataclass(frozen=True, slots=True)
class Session:
    """One agent session, encoded once.

    `messages` are the JSON of each message; `tools` the JSON of the tool schemas, empty if there are none. `stops` are
    the lengths of the transcripts that the client sends, ascending.
    """

    id: str
    messages: tuple[bytes, ...]
    tools: bytes
    stops: tuple[int, ...]

    def body(self, stop: int) -> bytes:
        """The client's request with the first `stop` messages."""
        tools = b',"tools":' + self.tools if self.tools else b""
        return b'{"model":"%b","messages":[%b]%b}' % (MODEL.encode(), b",".join(self.messages[:stop]), tools)

    def answers(self) -> Iterator[tuple[bytes, ...]]:
        """The model's answer to each request: its messages up to the next one that is not the assistant's."""
        for stop in self.stops:
            end = stop
            while end < len(self.messages) and self.is_assistant(end):
                end += 1
            yield self.messages[stop:end]

    def is_assistant(self, index: int) -> bool:
        """Whether the assistant wrote a message."""
        return bool(orjson.loads(self.messages[index])["role"] == "assistant")


def load_sessions(files: Sequence[Path]) -> list[Session]:
    """The sessions of JSONL files (`id`, `messages`, `tools`); without files the recorded ones, else made-up ones."""
    found = list(files) or sorted(RECORDED.glob("*.jsonl"))
    rows = [orjson.loads(line) for file in found for line in file.read_bytes().splitlines()]
    sessions = [encode(f"{number}-{row.get('id', 'session')}", row) for number, row in enumerate(rows)]
    return [session for session in sessions or make_sessions() if session.stops]


def make_sessions() -> list[Session]:
    """Long made-up sessions: one task, then call after call with its result; 60 to 800 kB."""
    sizes = [kilobytes * 1000 for kilobytes in _OWN_KILOBYTES]
    bodies = [build_body(size, steps=size // _OWN_STEP_BYTES, long_results=size // 200_000) for size in sizes]
    return [encode(f"own-{len(body) // 1000}kB", orjson.loads(body)) for body in bodies]


def encode(name: str, row: dict[str, Any]) -> Session:
    """A session from its `messages` and `tools`."""
    messages = row["messages"]
    roles = [message["role"] for message in messages]
    # No request was sent between two assistant messages in a row: the client made both of one answer.
    stops = [index for index in range(1, len(roles)) if roles[index] == "assistant" != roles[index - 1]]
    if roles and roles[-1] != "assistant":
        stops.append(len(roles))
    tools = orjson.dumps(row["tools"]) if row.get("tools") else b""
    # A session's name is also its credential, and is sent in headers.
    safe = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)
    return Session(safe[:NAME_CHARS], tuple(map(orjson.dumps, messages)), tools, tuple(stops))
