"""Reads the recordings' messages for the measure of needed identifiers (proxy/cli/records/run.py).

The definition reads the arguments of calls as they stand in the request, as JSON in a text. There a line break before a
name is an `n` that becomes its first letter, which makes another name of it. With `is_decoded`, arguments are read by
their values.

Law: pure, except that messages that were read are remembered.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from bench.retention.needed.tally import Known, Named
from trimtab.proxy.cli.records.run import find_identifiers


@dataclass(frozen=True, slots=True)
class Worded(Named):
    """A message as the measure sees it. `canonical` is its JSON with sorted keys.

    `calls` are (id, name, arguments) each.
    """

    role: str
    text: str
    calls: tuple[tuple[str | None, str, str], ...]


@lru_cache(maxsize=200_000)
def read_worded(raw: bytes, *, is_decoded: bool = False) -> Worded:
    """Read a message from its JSON. The same bytes are read once."""
    message: dict[str, Any] = orjson.loads(raw)
    functions = [(call.get("id"), call.get("function") or {}) for call in message.get("tool_calls") or ()]
    calls = tuple((name, str(each.get("name") or ""), str(each.get("arguments") or "")) for name, each in functions)
    text = _read_text(message.get("content"))
    said = ((name, _decode(arguments) if is_decoded else arguments) for _, name, arguments in calls)
    wording = text + "\n" + "\n".join(f"{name} {arguments}" for name, arguments in said)
    role = str(message.get("role") or "")
    ids = {message.get("tool_call_id")} if role == "tool" else {call[0] for call in calls}
    canonical = orjson.dumps(message, option=orjson.OPT_SORT_KEYS)
    return Worded(canonical, find_identifiers(wording), frozenset(ids), role, text, calls)


def _read_text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


def _decode(arguments: str) -> str:
    """The keys and values of arguments, a line each; arguments that are not JSON as they are."""
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    return "\n".join(_list_values(value))


def _list_values(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _list_values(each)
    elif isinstance(value, list):
        for each in value:
            yield from _list_values(each)
    else:
        yield str(value)


class Transcript(Known):
    """A session's messages up to a request, as the measure needs them. It only grows.

    `tools`: the declarations that each request has beside its messages, if their names count as there.
    """

    def __init__(self, messages: Sequence[bytes], tools: bytes = b"", *, is_decoded: bool = False) -> None:
        super().__init__(declared=find_identifiers(tools.decode()))
        self._messages = messages
        self._is_decoded = is_decoded
        self._read = 0

    def read(self, raw: bytes) -> Worded:
        """Read any message as those of the transcript are read."""
        return read_worded(raw, is_decoded=self._is_decoded)

    def extend(self, stop: int) -> list[Worded]:
        """Add the messages before `stop`; return the new ones."""
        new: list[Worded] = []
        for raw in self._messages[self._read : stop]:
            message = self.read(raw)
            self.add(message)
            new.append(message)
        self._read = max(self._read, stop)
        return new
