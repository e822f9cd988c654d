"""Bodies of any dialect, from sessions that are plain, odd or damaged, and from arbitrary bytes."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from fuzzing.choices import Choices, dump

Wire = dict[str, Any]
MAX_STEPS = 14
RAW, DAMAGED, ODD = 1, 2, 3
"""Kinds of bodies, chosen by the first byte. Any other kind is a plain session."""

TEXTS = (
    "all of this is what came out\n",
    "line of a log 12345\n",
    "word ",
    "é中\U0001f600 ",
    "x",
    "error: no such file\n",
)


@dataclass(frozen=True, slots=True)
class Grammar:
    """How sessions are written in a dialect.

    transcript: the member with the elements.
    members: the other members of a plain body, besides the transcript.
    start: the elements with which a plain session begins.
    step: the elements of a step: what the model says and does, and what comes back. Its number makes ids unique.
    keys: names of members that may become odd, in the body and in anything inside.
    """

    transcript: str
    members: Callable[[Choices], Wire]
    start: Callable[[Choices], list[Wire]]
    step: Callable[[Choices, int], list[Wire]]
    keys: Sequence[str]

    def write(self, choices: Choices) -> tuple[bytes, bool]:
        """A body, and whether any upstream of the dialect could read it. Its calls and results need not match."""
        kind = choices.below(8)
        if kind == RAW:
            return choices.rest(), False
        session = self.start(choices)
        for number in range(choices.below(MAX_STEPS)):
            session += self.step(choices, number)
        body = {**self.members(choices), self.transcript: session}
        if choices.happens(64):
            body["metadata"] = {}
        if kind == ODD:
            return self._write_odd(choices, body), False
        written = dump(body, choices)
        return (choices.mutate(written), False) if kind == DAMAGED else (written, True)

    def _write_odd(self, choices: Choices, body: Wire) -> bytes:
        """The body with odd values anywhere, and sometimes with a member twice or written with escapes."""
        body = deepcopy(body)  # the writers share some objects
        for _ in range(1 + choices.below(12)):
            disturb(choices, body, self.keys)
        written = dump(body, choices)
        name = f'"{self.transcript}"'.encode()
        if choices.happens(24):
            written = b"{" + name + b":" + dump(choices.value(), choices) + b"," + written.lstrip()[1:]
        if choices.happens(8):
            written = written.replace(name, b'"\\u%04x' % name[1] + name[2:])
        return b" \n" + written + b"\t " if choices.happens(16) else written


def disturb(choices: Choices, value: Wire, keys: Sequence[str]) -> None:
    """Change, drop or add one member of one object inside a value, or replace one item of one array."""
    places = list(_walk(value))
    place = places[choices.below(len(places))]
    if isinstance(place, list):
        place[choices.below(len(place))] = choices.value()
        return
    key = choices.pick([*place, *keys])
    if choices.happens(32):
        place.pop(key, None)
    else:
        place[key] = choices.pick(ODDITIES)(choices)


def _walk(value: Any) -> Iterator[Any]:
    """All objects, and all arrays that are not empty, from the outside in."""
    if isinstance(value, dict):
        yield value
        for one in value.values():
            yield from _walk(one)
    elif isinstance(value, list) and value:
        yield value
        for one in value:
            yield from _walk(one)


def write_text(choices: Choices, max_repeats: int = 60) -> str:
    """A text that is not empty: empty texts belong to the odd sessions."""
    return choices.pick(TEXTS) * (1 + choices.below(max_repeats))


def write_deep(choices: Choices) -> Any:
    """A value nested as deep as decoders allow, or slightly deeper."""
    value: Any = choices.text()
    for _ in range(choices.pick((10, 200, 500, 900))):
        value = [value]
    return value


ODDITIES: Sequence[Callable[[Choices], Any]] = (
    lambda choices: choices.text(200),
    lambda choices: choices.value(3),
    lambda choices: choices.pick((None, "", 0, [], {}, True)),
    lambda choices: [{"type": choices.text(), "text": choices.value()}],
    lambda choices: [choices.value(), choices.value()],
    lambda choices: choices.pick(("user", "assistant", "system", "tool", "text", "c0-0", "c1-0")),
    write_deep,
)
