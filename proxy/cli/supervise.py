"""`trimtab serve` with several workers: what is loaded once for all, and what is said once.

Law: what workers only read is loaded before they are forked, so that the memory is shared.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proxy.compaction.pool import CACHES_BYTES, Compactors
from proxy.config.errors import ConfigError
from proxy.config.schema import Config
from proxy.memory import bound_caches
from proxy.server.reload import keep_fixed, tell_proxies, warn_of_bare_credentials, warn_of_open_addresses
from proxy.server.workers.ground import Ground
from proxy.server.workers.supervisor import Program, Supervisor
from proxy.server.workers.worker import Worker

Load = Callable[[], Config]


@dataclass(frozen=True, slots=True)
class Start:
    """What a worker begins with. `config` is its own part, and `load` reads it again; None if there is no file."""

    worker: Worker
    config: Config
    load: Load | None
    compactors: Compactors


class WorkerLog:
    """The log, each line of which says which worker wrote it."""

    def __init__(self, log: Any, worker: int) -> None:
        self._log = log
        self._worker = worker

    def debug(self, event: str, **fields: Any) -> None:
        """Log an event."""
        self._log.debug(event, worker=self._worker, **fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log an event."""
        self._log.info(event, worker=self._worker, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log an event."""
        self._log.warning(event, worker=self._worker, **fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log an event."""
        self._log.error(event, worker=self._worker, **fields)


class _Told:
    """The configuration by which workers begin, and what the log says of it once for all of them."""

    def __init__(self, config: Config, load: Load | None, log: Any) -> None:
        self.config = config
        self._load = load
        self._log = log

    def reload(self) -> bool:
        """Read the configuration again; whether it is one that workers are to take over."""
        if self._load is None:
            self._log.info("nothing_to_reload", meaning="there is no configuration file; see --config")
            return False
        try:
            config = self._load()
        except ConfigError as error:
            for problem in str(error).splitlines():
                self._log.error("configuration_invalid", problem=problem, meaning="the one before stays in force")
            return False
        except (OSError, ValueError, LookupError, TypeError, RecursionError, MemoryError) as error:
            # By its type alone: what it says may quote a key.
            self._log.error("reload_failed", error=type(error).__name__, meaning="the one before stays in force")
            return False
        self.config, _ = keep_fixed(self.config, config)
        return True

    def drain_seconds(self) -> float:
        """What a worker may take to end."""
        return self.config.limits.shutdown_delay_seconds + self.config.limits.drain_seconds

    def tell_ready(self, ground: Ground) -> None:
        """All workers take requests."""
        config, url = self.config, ground.requests.url
        metrics = (ground.pages or ground.requests).url + config.metrics_path
        upstream = config.upstream.base_url
        self._log.info(
            "listening", url=f"{url}/v1", upstream=upstream, mode=config.mode, metrics=metrics, workers=ground.count
        )
        tell_proxies(config, self._log)
        warn_of_bare_credentials(config, self._log)


def start_workers(config: Config, load: Load | None, count: int, log: Any) -> Start | int:
    """Run so many workers. In the process of a worker, what it begins with; else the status to end with, in the end.

    Raises OSError if it cannot listen, in this process, before there is any worker.
    """
    told, ground = _Told(config, load, log), Ground.open(config, count)
    warn_of_open_addresses(config, log)
    if config.store == "memory":
        meaning = "each worker keeps its own summaries, asks for them itself, and learns alone; see store"
        log.warning("store_not_shared", store=config.store, meaning=meaning)
    limits = config.as_worker_of(count).limits
    compactors = Compactors(log, caches_bytes=bound_caches(limits.max_memory_bytes, CACHES_BYTES))
    program = Program(told.reload, told.drain_seconds, lambda: told.tell_ready(ground))
    gc.collect()
    gc.freeze()  # a collection in a worker would write to memory that all of them share
    worker = Supervisor(ground, program, log).run()
    if isinstance(worker, int):
        return worker
    load_part = None if load is None else lambda: load().as_worker_of(count)
    return Start(worker, told.config.as_worker_of(count), load_part, compactors)
