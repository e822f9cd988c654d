"""Groups of real redis-servers: a master with a replica and a sentinel, and the nodes of a cluster."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis
from programs.redis_server import PROGRAM, RedisServer, find_free_port, run_redis

SERVICE = "kept"
SLOTS = 16384
WAIT_SECONDS = 30.0
_SENTINEL = """
port {port}
bind 127.0.0.1
dir {directory}
sentinel monitor {service} 127.0.0.1 {master} 1
sentinel down-after-milliseconds {service} 60000
sentinel failover-timeout {service} 3000
"""


@dataclass(frozen=True, slots=True)
class Watched:
    """A master, its replica, and the port of the sentinel that watches both."""

    master: RedisServer
    replica: RedisServer
    port: int

    @property
    def url(self) -> str:
        """The URL of the service, by its sentinels. The first sentinel in the URL does not exist."""
        return f"redis+sentinel://127.0.0.1:1,127.0.0.1:{self.port}/{SERVICE}/0"

    def miss_master_after(self, milliseconds: int) -> None:
        """From now on, the replica takes the place of a master that is silent for that long."""
        with redis.Redis(port=self.port) as client:
            client.execute_command("SENTINEL SET", SERVICE, "down-after-milliseconds", milliseconds)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Two nodes, each with half of the hash slots."""

    nodes: tuple[RedisServer, ...]

    @property
    def url(self) -> str:
        """The URL of the cluster. The first node in the URL does not exist."""
        return f"redis+cluster://127.0.0.1:1,127.0.0.1:{self.nodes[0].port}"


@contextmanager
def run_watched() -> Iterator[Watched]:
    """Run a master with a connected replica, and a sentinel that knows both.

    It is slow to miss the master, which may be silent for a while on a busy machine.
    """
    with ExitStack() as stack:
        master = stack.enter_context(run_redis())
        replica = stack.enter_context(run_redis("--replicaof", "127.0.0.1", str(master.port)))
        wait_until(lambda: _tell(replica.port, "replication")["master_link_status"] == "up")
        port = stack.enter_context(_run_sentinel(master.port))
        wait_until(lambda: _count_replicas(port) == 1)
        yield Watched(master, replica, port)


@contextmanager
def run_cluster() -> Iterator[Cluster]:
    """Run a cluster that serves all keys."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(_run_node()) for _ in range(2)]
        share = SLOTS // len(nodes)
        for number, node in enumerate(nodes):
            with redis.Redis(port=node.port) as client:
                client.execute_command("CLUSTER ADDSLOTSRANGE", number * share, (number + 1) * share - 1)
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
        with redis.Redis(port=nodes[0].port) as client:
            bus_port = int(nodes[1].options["cluster-port"])
            client.execute_command("CLUSTER MEET", "127.0.0.1", nodes[1].port, bus_port)
        for node in nodes:
            wait_until(lambda node=node: _is_whole(node.port))
        yield Cluster(tuple(nodes))


def wait_until(is_so) -> None:
    """Wait until `is_so()` is true. Raises AssertionError after WAIT_SECONDS."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.02)


@contextmanager
def _run_node() -> Iterator[RedisServer]:
    bus_port = str(find_free_port())
    with run_redis("--cluster-enabled", "yes", "--cluster-port", bus_port) as node:
        node.options["cluster-port"] = bus_port
        yield node


@contextmanager
def _run_sentinel(master_port: int) -> Iterator[int]:
    assert PROGRAM is not None
    with tempfile.TemporaryDirectory(prefix="trimtab-sentinel-") as directory:
        port = find_free_port()
        file = Path(directory, "sentinel.conf")
        names = {"port": port, "directory": directory, "service": SERVICE, "master": master_port}
        file.write_text(_SENTINEL.format(**names))
        process = subprocess.Popen([PROGRAM, str(file), "--sentinel"], stdout=subprocess.DEVNULL)
        try:
            yield port
        finally:
            process.kill()
            process.wait()


def _tell(port: int, section: str) -> dict[str, object]:
    with redis.Redis(port=port) as client:
        return client.info(section)


def _count_replicas(sentinel_port: int) -> int:
    try:
        with redis.Redis(port=sentinel_port) as client:
            return sum(not one["is_disconnected"] for one in client.sentinel_slaves(SERVICE))
    except redis.ConnectionError:
        return 0


def _is_whole(port: int) -> bool:
    with redis.Redis(port=port, decode_responses=True) as client:
        info = client.execute_command("CLUSTER INFO")
        return info["cluster_state"] == "ok" and info["cluster_known_nodes"] == "2"
