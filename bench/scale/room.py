"""The memory of sessions and open streams, and the bytes of sessions in the store.

Law: memory is a difference within one process; the memory before the first session or stream is not counted.
"""

import http.client
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.harness.servers import HOST
from bench.scale.gateways import Gateway
from bench.scale.session import Session

_WARM_UP_SESSIONS = 20
_STREAM = orjson.dumps(
    {"model": "gpt-4o", "stream": True, "messages": [{"role": "user", "content": "Tell me a long story."}]}
)


@dataclass(frozen=True, slots=True)
class Held:
    """Megabytes that a number of sessions or streams added."""

    gateway: str
    what: str
    number: int
    megabytes: float

    @property
    def per_thousand_mb(self) -> float:
        """Megabytes for a thousand of them."""
        return self.megabytes / self.number * 1000


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes of the store's files for a number of sessions, each with at least one summary."""

    sessions: int
    transcript_bytes: int
    store_bytes: int


def measure_sessions(gateway: Gateway, number: int, turns: int) -> Held:
    """One request of each of `number` sessions, each from its own client."""
    for index in range(_WARM_UP_SESSIONS):
        gateway.ask(Session(-1 - index).write_body(turns))
    before_mb = gateway.read_memory_mb()
    size = 0
    for index in range(number):
        body = Session(1000 + index).write_body(turns)
        size = len(body)
        gateway.ask(body, f"Bearer sk-{index}")
    what = f"sessions of {size / 1000:.0f} KB"
    return Held(gateway.name, what, number, gateway.read_memory_mb() - before_mb)


def measure_streams(gateway: Gateway, number: int) -> Held:
    """Streams that have begun and do not end. First tell the upstream to pause (`pause_streams`)."""
    opened = [_open_stream(gateway.port) for _ in range(_WARM_UP_SESSIONS)]
    before_mb = gateway.read_memory_mb()
    opened += [_open_stream(gateway.port) for _ in range(number)]
    held = gateway.read_memory_mb() - before_mb
    for connection in opened:
        connection.close()
    return Held(gateway.name, "open streams", number, held)


def _open_stream(port: int) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(HOST, port, timeout=30.0)
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-bench"}
    connection.request("POST", "/v1/chat/completions", _STREAM, headers)
    # The first event has arrived, so the stream is open on both sides.
    connection.getresponse().readline()
    return connection


def pause_streams(upstream_port: int) -> None:
    """From now on the second event of a stream comes after an hour."""
    connection = http.client.HTTPConnection(HOST, upstream_port, timeout=5.0)
    connection.request("GET", "/control?events=2&pause_us=3600000000")
    connection.getresponse().read()
    connection.close()


def measure_store(gateway: Gateway, file: Path, sessions: int, turns: Sequence[int]) -> Stored:
    """Sessions that grow through these lengths; `file` is the gateway's SQLite store."""
    transcripts = 0
    for index in range(sessions):
        session = Session(5000 + index)
        for length in turns:
            body = session.write_body(length)
            gateway.ask(body, f"Bearer sk-{index}")
        transcripts += len(session.write_body(turns[-1]))
    stored = sum(one.stat().st_size for one in file.parent.glob(f"{file.name}*"))
    return Stored(sessions, transcripts, stored)
