"""Reads the recordings' messages for the measure of needed identifiers (proxy/cli/records/needed.py).

Law: pure, except that messages that were read are remembered.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from bench.retention.needed.tally import Known, Named
from trimtab.proxy.cli.records.needed import find_identifiers


@dataclass(frozen=True, slots=True)
class Worded(Named):
    """A message as the measure sees it. `canonical` is its JSON with sorted keys.

    `calls` are (id, name, arguments) each.
    """

    role: str
    text: str
    calls: tuple[tuple[str | None, str, str], ...]


@lru_cache(maxsize=200_000)
def read_worded(raw: bytes) -> Worded:
    """Read a message from its JSON. The same bytes are read once."""
    message: dict[str, Any] = orjson.loads(raw)
    functions = [(call.get("id"), call.get("function") or {}) for call in message.get("tool_calls") or ()]
    calls = tuple((name, str(each.get("name") or ""), str(each.get("arguments") or "")) for name, each in functions)
    text = _read_text(message.get("content"))
    wording = text + "\n" + "\n".join(f"{name} {arguments}" for _, name, arguments in calls)
    role = str(message.get("role") or "")
    ids = {message.get("tool_call_id")} if role == "tool" else {call[0] for call in calls}
    canonical = orjson.dumps(message, option=orjson.OPT_SORT_KEYS)
    return Worded(canonical, find_identifiers(wording), frozenset(ids), role, text, calls)


def _read_text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


class Transcript(Known):
    """A session's messages up to a request, as the measure needs them. It only grows."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        super().__init__()
        self._messages = messages
        self._read = 0

    def extend(self, stop: int) -> Iterator[Worded]:
        """Add the messages before `stop`; return the new ones."""
        for raw in self._messages[self._read : stop]:
            message = read_worded(raw)
            self.add(message)
            yield message
        self._read = max(self._read, stop)
