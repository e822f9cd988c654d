"""The load generator in Python, for machines without a compiler. Same options and output as native/generator.c.

Law: the same options, the same line of JSON. It needs more of its core than the C program, so it makes less load.
"""

import argparse
import asyncio
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_CLOSING = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
_NONCE = re.compile(rb"NONCE-\d{10}")
_GRACE_SECONDS = 20.0
_BUFFER_BYTES = 1 << 20

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(slots=True)
class _Tally:
    answers: int = 0
    done: int = 0
    failed: int = 0
    last_seconds: float = 0.0
    first_us: list[float] = field(default_factory=list)
    last_us: list[float] = field(default_factory=list)


class Generator:
    """One run of the generator."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._body = options.body.read_bytes()
        self._number = 0
        self._tally = _Tally()
        self._warm_until = self._end = 0.0

    async def run(self) -> _Tally:
        """Send requests until the time of the warm-up and of the run is over."""
        options = self._options
        started = time.perf_counter()
        self._warm_until = started + options.warm_up
        self._end = self._warm_until + options.seconds
        asked = [asyncio.ensure_future(self._ask_on(index)) for index in range(options.connections)]
        _, late = await asyncio.wait(asked, timeout=options.warm_up + options.seconds + _GRACE_SECONDS)
        self._tally.failed += len(late)
        for task in late:
            _ = task.cancel()
        return self._tally

    async def _ask_on(self, index: int) -> None:
        await asyncio.sleep(self._options.ramp_ms / 1000 * index / self._options.connections)
        connection: Connection | None = None
        while not self._is_over():
            try:
                connection = connection or await asyncio.open_connection(
                    "127.0.0.1", self._options.port, limit=_BUFFER_BYTES
                )
                keeps = await self._ask(*connection)
            except (OSError, EOFError, ValueError):
                self._tally.failed += 1
                keeps = False
                await asyncio.sleep(0.001)
            self._tally.done += 1
            if connection and not keeps:
                connection[1].close()
                connection = None
            if self._options.idle_ms:
                await asyncio.sleep(self._options.idle_ms / 1000)
        if connection:
            connection[1].close()

    def _is_over(self) -> bool:
        most = self._options.requests
        return time.perf_counter() >= self._end or (most is not None and self._tally.done >= most)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Send one request and read its response; return whether the connection may be used again."""
        request = self._write_request()
        started = time.perf_counter()
        writer.writelines(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await reader.readexactly(min(int(length.group(1)), 1)) if length else b""
        first = b""
        if not length and _CHUNKED.search(head):
            first = await reader.readuntil(b"\r\n")
        arrived = time.perf_counter()
        if length:
            body += await reader.readexactly(int(length.group(1)) - len(body))
        while first and (size := int(first.split(b";")[0], 16)):
            body = (body + await reader.readexactly(size))[-32:]
            await reader.readexactly(2)
            first = await reader.readuntil(b"\r\n")
        if first:
            await reader.readuntil(b"\r\n")
        self._note(started, arrived, is_good=b" 200 " in head[:16] and (not self._options.stream or b"[DONE]" in body))
        return not _CLOSING.search(head)

    def _note(self, started: float, arrived: float, *, is_good: bool) -> None:
        ended = time.perf_counter()
        if not is_good:
            self._tally.failed += 1
        elif started >= self._warm_until:
            self._tally.answers += 1
            self._tally.last_seconds = ended - self._warm_until
            self._tally.first_us.append((arrived - started) * 1e6)
            self._tally.last_us.append((ended - started) * 1e6)

    def _write_request(self) -> tuple[bytes, bytes]:
        options, body = self._options, self._body
        if options.unique:
            body = _NONCE.sub(b"NONCE-%010d" % self._number, body)
            self._number += 1
        accept = "text/event-stream" if options.stream else "application/json"
        lines = [
            f"POST {options.path} HTTP/1.1",
            f"Host: 127.0.0.1:{options.port}",
            "Content-Type: application/json",
            f"Accept: {accept}",
            "Authorization: Bearer sk-bench",
            "User-Agent: OpenAI/Python 2.0.0",
            "Accept-Encoding: identity",
            f"Content-Length: {len(body)}",
            *options.header,
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode(), body


def describe(tally: _Tally) -> dict[str, object]:
    """The same line of JSON that the C program prints."""
    return {
        "done": tally.done,
        "answers": tally.answers,
        "failed": tally.failed,
        "seconds": tally.last_seconds,
        "first": _find_quantiles(tally.first_us),
        "last": _find_quantiles(tally.last_us),
    }


def _find_quantiles(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    values.sort()
    return {f"p{share}": values[int((len(values) - 1) * share / 100)] for share in (50, 95, 99)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("path")
    parser.add_argument("body", type=Path)
    parser.add_argument("-c", dest="connections", type=int, default=1)
    parser.add_argument("-d", dest="seconds", type=float, default=5.0)
    parser.add_argument("-n", dest="requests", type=int)
    parser.add_argument("-i", dest="idle_ms", type=int, default=0)
    parser.add_argument("-r", dest="ramp_ms", type=int, default=0)
    parser.add_argument("-w", dest="warm_up", type=float, default=0.3)
    parser.add_argument("-s", dest="stream", action="store_true")
    parser.add_argument("-u", dest="unique", action="store_true")
    parser.add_argument("-H", dest="header", action="append", default=[])
    print(orjson.dumps(describe(uvloop.run(Generator(parser.parse_args()).run()))).decode())


if __name__ == "__main__":
    main()
