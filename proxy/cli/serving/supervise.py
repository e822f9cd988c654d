"""`trimtab serve` with several workers: loads once what they share, and logs once what concerns all of them.

Law: what workers only read is loaded before they are forked, so that they share its memory.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from trimtab.proxy.cli.serving.greeting import Screen, warn_of_risks
from trimtab.proxy.compaction.pool import CACHES_BYTES, Compactors
from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.schema import Config
from trimtab.proxy.memory import bound_caches
from trimtab.proxy.server.reload import keep_fixed
from trimtab.proxy.server.workers.supervisor import Program, Supervisor
from trimtab.proxy.server.workers.worker import Ground, Worker
from trimtab.proxy.telemetry.logs import LEVELS
from trimtab.proxy.telemetry.shared import Reloads
from trimtab.rules.text.late import compile_all

Load = Callable[[], Config]


@dataclass(frozen=True, slots=True)
class Start:
    """The data that a worker starts with.

    config: the worker's share of the configuration.
    load: reads this share again; None without a configuration file.
    """

    worker: Worker
    config: Config
    load: Load | None
    compactors: Compactors


class WorkerLog:
    def __init__(self, log: Any, worker: int) -> None:
        levels = (partial(getattr(log, level), worker=worker) for level in LEVELS)
        self.debug, self.info, self.warning, self.error = levels


class _Told:
    """The configuration for workers that start later. Logs each event about it once, for all workers together.

    reloads: where the metrics of all workers find whether the last reload succeeded.
    """

    def __init__(self, config: Config, load: Load | None, log: Any, screen: Screen, reloads: Reloads) -> None:
        self.config = config
        self._screen = screen
        self._load = load
        self._log = log
        self._reloads = reloads

    def reload(self) -> bool:
        """Read the configuration again. Return whether it is valid, so that workers should read it, too."""
        if self._load is None:
            self._log.info("nothing_to_reload", meaning="there is no configuration file; see --config")
            return False
        return self._read(self._load)

    def _read(self, load: Load) -> bool:
        """Read the configuration, note whether it is valid, and log why not: whoever sees the log sees the note."""
        try:
            config = load()
        except ConfigError as error:
            self._reloads.write(None)
            for problem in str(error).splitlines():
                self._log.error(
                    "configuration_invalid", problem=problem, meaning="the previous configuration stays in force"
                )
            return False
        except (OSError, ValueError, LookupError, TypeError, RecursionError, MemoryError) as error:
            self._reloads.write(None)
            # Only the type: the text of the error may quote a key.
            self._log.error(
                "reload_failed", error=type(error).__name__, meaning="the previous configuration stays in force"
            )
            return False
        self.config, _ = keep_fixed(self.config, config)
        self._reloads.write(time.time())
        return True

    def drain_seconds(self) -> float:
        return self.config.limits.shutdown_delay_seconds + self.config.limits.drain_seconds

    def tell_ready(self, ground: Ground) -> None:
        url, pages_url = ground.requests.url, (ground.pages or ground.requests).url
        self._screen.announce(self.config, url, pages_url, self._log, workers=ground.count)


def start_workers(config: Config, load: Load | None, count: int, log: Any, screen: Screen) -> Start | int:
    """Run `count` workers.

    Returns twice: in each worker's process at once, with what the worker starts with; in this process when all workers
    have ended, with the exit status. Raises OSError before the first worker starts if it cannot listen.
    """
    ground = Ground.open(config, count)
    told = _Told(config, load, log, screen, ground.metrics.reloads)
    warn_of_risks(config, log)
    if config.store == "memory":
        meaning = "workers do not share their summaries, nor what they learn about models; see store"
        log.warning("store_not_shared", store=config.store, meaning=meaning)
    limits = config.as_worker_of(count).limits
    compactors = Compactors(log, caches_bytes=bound_caches(limits.max_memory_bytes, CACHES_BYTES))
    compactors.load()
    compile_all()
    program = Program(told.reload, told.drain_seconds, lambda: told.tell_ready(ground))
    gc.collect()
    gc.freeze()  # else a collection in a worker would write to, and so copy, the shared memory
    worker = Supervisor(ground, program, log).run()
    if isinstance(worker, int):
        return worker
    load_part = None if load is None else lambda: load().as_worker_of(count)
    return Start(worker, told.config.as_worker_of(count), load_part, compactors)
