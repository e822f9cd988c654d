"""A made-up session of any length: each turn has the bytes of the turn before and some more.

Law: the body of a turn begins with the messages of the turn before; the same number makes the same session.
"""

import random

import orjson

TURN_BYTES = 5000
"""Approximate bytes of an assistant's call and its result. Chosen: 2,000 turns are 10 MB."""
_WORDS = ("config", "parser", "retry", "loader", "session", "buffer", "answer", "index", "cache", "window", "socket")
_LINE = "src/{0}/{1}_{2}.py:{n}: {3} waits for the {4} of the {2}, value {m:08x}"


class Session:
    """A session that is written as far as it is asked for."""

    def __init__(self, number: int = 0, *, model: str = "gpt-4o", turn_bytes: int = TURN_BYTES) -> None:
        self._dice = random.Random(number)  # noqa: S311 - no secret: the same text in every run
        self._turn_bytes = turn_bytes
        self._model = model
        system = f"You are a careful engineer in project {number}."
        self._messages = [
            orjson.dumps({"role": "system", "content": system}),
            orjson.dumps({"role": "user", "content": "Find out why the nightly build fails, and mend it."}),
        ]

    def write_body(self, turns: int) -> bytes:
        """The request after this number of calls and results."""
        while len(self._messages) < 2 + 2 * turns:
            self._messages += self._write_turn(len(self._messages) // 2)
        messages = b",".join(self._messages[: 2 + 2 * turns])
        return b'{"model":%b,"messages":[%b],"temperature":0.5}' % (orjson.dumps(self._model), messages)

    def _write_turn(self, number: int) -> tuple[bytes, bytes]:
        call_id = f"call_{number:06d}_{self._dice.getrandbits(48):012x}"
        arguments = orjson.dumps({"path": f"src/part_{number}.py"}).decode()
        call = {"id": call_id, "type": "function", "function": {"name": "read_file", "arguments": arguments}}
        said = {"role": "assistant", "content": f"Next I look at part {number}.", "tool_calls": [call]}
        lines: list[str] = []
        while sum(map(len, lines)) < self._turn_bytes - 400:
            words = self._dice.choices(_WORDS, k=5)
            lines.append(_LINE.format(*words, n=self._dice.randrange(9999), m=self._dice.getrandbits(32)))
        result = {"role": "tool", "tool_call_id": call_id, "content": "\n".join(lines)}
        return orjson.dumps(said), orjson.dumps(result)
