"""Long texts of one shape each, of any length: unusual output of tools.

Law: seeded; the same call makes the same text. Most shapes do not repeat themselves: a short period would favour
caches.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from itertools import count

import orjson

MEGABYTE = 1_000_000
_SEED = 29
_WORDS = ("loader", "session", "token", "buffer", "index", "cache", "retry", "handler", "stream", "socket", "queue")
_LEVELS = ("INFO",) * 40 + ("DEBUG",) * 20 + ("WARNING",) * 3 + ("ERROR",)
_CHUNK = 64


def _make_records(dice: random.Random) -> Iterator[str]:
    for number in count():
        record = {"id": number, "name": dice.choice(_WORDS), "size": dice.randrange(10**6), "ok": dice.random() < 0.999}
        yield orjson.dumps(record).decode() + ","


def _make_letters(dice: random.Random) -> Iterator[str]:
    while True:
        yield "".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=_CHUNK))


def _make_log(dice: random.Random) -> Iterator[str]:
    for number in count():
        clock = f"2026-11-22T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z"
        words = f"{dice.choice(_WORDS)}.{dice.choice(_WORDS)}"
        yield f"{clock} {dice.choice(_LEVELS)} {words} took {dice.randrange(2000)} ms, {dice.randrange(10**6):x}\n"


def _make_script(dice: random.Random) -> Iterator[str]:
    while True:
        one, two, three = (dice.choice(_WORDS) for _ in range(3))
        yield f'function {one[0]}{dice.randrange(999)}({two[0]}){{var {three}={two[0]}.{two}||"{one}";return {three}?'
        yield f"{one}({dice.randrange(9999)},{two[0]}):null}}!function(){{{two}.{three}=[{dice.random():.6f}]}}();"


def _make_empty(_: random.Random) -> Iterator[str]:
    while True:
        yield "\n" * _CHUNK


_MAKERS: Mapping[str, Callable[[random.Random], Iterator[str]]] = {
    "JSON in one line": _make_records,
    "one line of letters": _make_letters,
    "log lines": _make_log,
    "minified JavaScript": _make_script,
    "empty lines": _make_empty,
}
SHAPES = tuple(_MAKERS)


def make_shape(shape: str, size_bytes: int) -> str:
    """A text of a shape and approximate length."""
    pieces: list[str] = []
    total = 0
    for piece in _MAKERS[shape](random.Random(_SEED)):  # noqa: S311 - no secret: the same text in every run
        pieces.append(piece)
        total += len(piece)
        if total >= size_bytes:
            break
    text = "".join(pieces)
    return f"[{text[:-1]}]" if shape == SHAPES[0] else text
