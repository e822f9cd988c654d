"""What sessions and open streams take of memory, and sessions of the store.

Law: memory is a difference within one process; what it was before the first one is not counted.
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
    """Megabytes that so many of something took."""

    gateway: str
    what: str
    number: int
    megabytes: float

    @property
    def per_thousand_mb(self) -> float:
        """For a thousand of them."""
        return self.megabytes / self.number * 1000


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes of the store's files that so many sessions took; each had a summary at least."""

    sessions: int
    transcript_bytes: int
    store_bytes: int


def measure_sessions(gateway: Gateway, number: int, turns: int) -> Held:
    """So many sessions of a client each, one request of each."""
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
    """So many streams that have begun and do not end; the upstream must have been told to pause."""
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
    # Its first event has come through, so the stream is open on both sides.
    connection.getresponse().readline()
    return connection


def pause_streams(upstream_port: int) -> None:
    """From now on the upstream's streams have a second event after an hour only."""
    connection = http.client.HTTPConnection(HOST, upstream_port, timeout=5.0)
    connection.request("GET", "/control?events=2&pause_us=3600000000")
    connection.getresponse().read()
    connection.close()


def measure_store(gateway: Gateway, file: Path, sessions: int, turns: Sequence[int]) -> Stored:
    """Sessions that grow through these lengths; the file is the gateway's SQLite store."""
    transcripts = 0
    for index in range(sessions):
        session = Session(5000 + index)
        for length in turns:
            body = session.write_body(length)
            gateway.ask(body, f"Bearer sk-{index}")
        transcripts += len(session.write_body(turns[-1]))
    stored = sum(one.stat().st_size for one in file.parent.glob(f"{file.name}*"))
    return Stored(sessions, transcripts, stored)
