"""Several `trimtab serve` behind a real nginx, configured as in docs/guides/several-processes.md."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import orjson
from programs.front_proxies import PROGRAMS, run_configured
from programs.serving import serving
from yarl import URL

NGINX = """
  upstream trimtab {{
    {servers}
    keepalive 16;
  }}
  server {{
    listen 127.0.0.1:{port};
    client_max_body_size 32m;
    client_body_buffer_size 1m;
    location / {{
      proxy_pass http://trimtab;
      proxy_http_version 1.1;
      proxy_set_header Host $host;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_connect_timeout 2s;
      proxy_read_timeout 900s;
      proxy_next_upstream error timeout non_idempotent;
      proxy_next_upstream_tries 2;
      add_header X-Served-By $upstream_addr always;
    }}
  }}
}}
"""


@dataclass(slots=True)
class Replica:
    """A process, its `HOST:PORT`, and its log lines so far."""

    process: asyncio.subprocess.Process
    address: str
    lines: list[dict[str, Any]] = field(default_factory=list)

    def count(self, event: str) -> int:
        """The number of its log lines with this event."""
        return sum(line["event"] == event for line in self.lines)


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """Replicas behind nginx.

    url: nginx's base URL, with /v1.
    """

    url: str
    replicas: tuple[Replica, ...]


@asynccontextmanager
async def run_replicas(number: int, *arguments: str) -> AsyncIterator[ReplicaGroup]:
    """Run this number of processes with these arguments, and nginx in front of them."""
    assert PROGRAMS["nginx"] is not None
    async with AsyncExitStack() as stack:
        starts = [stack.enter_async_context(serving(*arguments)) for _ in range(number)]
        replicas = []
        for start in starts:
            process, url = await start
            replicas.append(Replica(process, f"127.0.0.1:{URL(url).port}"))
        readers = await stack.enter_async_context(_Readers())
        for replica in replicas:
            readers.start(replica)
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-replicas-"))
        servers = "\n".join(f"server {one.address} max_fails=1 fail_timeout=60s;" for one in replicas)
        text = NGINX.replace("{servers}", servers)
        port = stack.enter_context(run_configured("nginx", text, Path(directory)))
        yield ReplicaGroup(f"http://127.0.0.1:{port}/v1", tuple(replicas))


class _Readers:
    """Read the logs all the time: a process blocks if nobody reads its pipe."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, replica: Replica) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(self._read(replica)))

    async def _read(self, replica: Replica) -> None:
        async for line in replica.process.stderr:
            replica.lines.append(orjson.loads(line))
