"""What is asked of each gateway: bodies, the shape of the load, and what the upstream answers.

Law: bodies are made up and the same in every run; only the model name differs between targets.
"""

from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.material.transcript import build_body

LARGE_BYTES = 404_000
_NONCE = "NONCE-0000000000"
"""A nonce of fixed length: the generator counts up in its digits."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of load. `options` are for the generator; `quick_options` replace them in the quick mode.

    `events` and `pause_us` set the streams of the upstream. `by_event`: processor time is per event.
    """

    name: str
    body: str
    options: tuple[str, ...]
    quick_options: tuple[str, ...]
    events: int = 0
    pause_us: int = 0
    by_event: bool = False


_STREAMS = ("-c", "200", "-n", "300", "-d", "16", "-w", "0", "-r", "3000", "-s")
_QUICK_STREAMS = ("-c", "100", "-n", "100", "-d", "8", "-w", "0", "-r", "500", "-s")
QUICK_EVENTS = 50
SCENARIOS = (
    Scenario("small", "small", ("-c", "32", "-d", "3"), ("-c", "32", "-d", "0.7", "-w", "0.2")),
    Scenario("known", "large", ("-c", "8", "-d", "3"), ("-c", "8", "-d", "0.7", "-w", "0.2")),
    Scenario("new", "fresh", ("-c", "1", "-d", "3", "-u"), ("-c", "1", "-d", "0.7", "-w", "0.2", "-u")),
    Scenario(
        "first",
        "stream",
        ("-c", "1", "-n", "16", "-d", "10", "-w", "0.5", "-i", "250", "-s"),
        ("-c", "1", "-n", "7", "-d", "5", "-w", "0.3", "-i", "250", "-s"),
        events=3,
        pause_us=1000,
    ),
    Scenario("events", "stream", _STREAMS, _QUICK_STREAMS, events=200, pause_us=20_000, by_event=True),
    Scenario("events_usage", "stream_usage", _STREAMS, _QUICK_STREAMS, events=200, pause_us=20_000, by_event=True),
)
"""Streams come last: memory is read at the end, when the gateway still keeps the large bodies."""


def write_bodies(folder: Path, model: str) -> dict[str, Path]:
    """Write a file for each kind of body."""
    large = build_body(LARGE_BYTES, model=model)
    bodies = {
        "small": _write_small(model),
        "large": large,
        "fresh": mark_fresh(large),
        "stream": _write_small(model, stream=True),
        "stream_usage": _write_small(model, stream=True, stream_options={"include_usage": True}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / f"{name}.json" for name in bodies}
    for name, body in bodies.items():
        files[name].write_bytes(body)
    return files


def mark_fresh(body: bytes) -> bytes:
    """The body with a nonce at the beginning of each tool result, so that no result was seen before."""
    document = orjson.loads(body)
    for message in document["messages"]:
        if message["role"] == "tool":
            message["content"] = f"{_NONCE}\n{message['content']}"
    return orjson.dumps(document)


def _write_small(model: str, **others: object) -> bytes:
    messages = [
        {"role": "system", "content": "You are a helpful assistant. Answer briefly and plainly."},
        {"role": "user", "content": "What is the capital of France, and how many people live there?"},
    ]
    return orjson.dumps({"model": model, "messages": messages, "temperature": 0.5, "max_tokens": 64, **others})
