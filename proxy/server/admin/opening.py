"""Opens and changes the dashboard's data with the configuration.

Law: what is switched off keeps nothing, and erases nothing of other processes. The table is where summaries are: in
memory, in a file beside theirs, or in a copy of the log on their server. Workers share one file in any case.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import structs

from trimtab.proxy.account.history.kept import History, Places, SharedLog
from trimtab.proxy.account.history.table import MAX_EVENTS, Bounds
from trimtab.proxy.config.schema import Config
from trimtab.proxy.memory import bound_history, bound_text
from trimtab.proxy.server.workers.worker import Worker
from trimtab.proxy.store.opening import find_beside, require_store

EVENTS_SHARE = 2  # Half of the history's memory is for events. Chosen: indexes and minutes take less.
FOLDER_SHARE = 4
"""Of the folder's file system, 1/4 each for texts and events. Chosen: metrics need space in a /dev/shm of 64 MB."""
FILE_NAME = "events.sqlite3"
TEXTS_NAME = "texts.sqlite3"
IN_MEMORY = ":memory:"


def measure_dashboard(config: Config) -> int:
    most_bytes, dashboard = config.limits.max_memory_bytes, config.dashboard
    if not dashboard.enabled:
        return 0
    return bound_history(most_bytes) + (bound_text(most_bytes) if dashboard.keep_text else 0)


def open_history(
    config: Config,
    worker: Worker | None = None,
    *,
    log: Any = None,
    on_error: Callable[[BaseException], None] = lambda _: None,
    on_fault: Callable[[str], None] = lambda _: None,
) -> History:
    """The history of a process; empty while the dashboard is off. Raises ConfigError if Redis cannot be used."""
    places = _find_places(config, worker)
    is_on, keeps_text = config.dashboard.enabled, _keeps_text(config)
    return History(is_on=is_on, keeps_text=keeps_text, places=places, log=log, on_error=on_error, on_fault=on_fault)


def _find_places(config: Config, worker: Worker | None) -> Places:
    number, workers, folder = (1, 1, None) if worker is None else (worker.number, worker.count, worker.metrics.path)
    file = find_beside(config, ".events", FILE_NAME)
    shared = [] if folder is None else [folder / FILE_NAME]
    texts = IN_MEMORY if folder is None else str(folder / TEXTS_NAME)
    log = None
    if file is not None:
        shared.insert(0, file)
    elif config.store != "memory":
        require_store(config)
        log = SharedLog(config.store, ttl_seconds=config.store_ttl_seconds)
    places = Places(shared, texts, log, number, workers, is_shared=file is not None)
    return structs.replace(places, bounds=_bound(config, places))


def _bound(config: Config, places: Places) -> Bounds:
    most_bytes, workers = config.limits.max_memory_bytes, places.workers
    events_bytes, text_bytes = workers * bound_history(most_bytes) // EVENTS_SHARE, workers * bound_text(most_bytes)
    if places.texts != IN_MEMORY:
        share = shutil.disk_usage(Path(places.texts).parent).total // FOLDER_SHARE
        text_bytes = min(text_bytes, share)
        events_bytes = events_bytes if places.is_shared else min(events_bytes, share)
    return Bounds(workers * MAX_EVENTS, events_bytes, text_bytes, config.store_ttl_seconds)


def adopt_dashboard(past: History, config: Config) -> None:
    """Use the dashboard's keys of another configuration. What is not to be kept any more is erased."""
    past.is_on, past.bounds = config.dashboard.enabled, _bound(config, past.places)
    past.keep_text(keeps_text=_keeps_text(config))
    if not config.dashboard.enabled:
        past.clear()


def _keeps_text(config: Config) -> bool:
    return config.dashboard.enabled and config.dashboard.keep_text
