"""Opens the store of statistics that belongs to the configured store.

Law: statistics are where summaries are: in memory, in a file beside theirs, or on the same server.
"""

from pathlib import Path
from typing import Any

from proxy.account.statistics.sqlite import SqliteStatistics
from proxy.account.statistics.store import MemoryStatistics, StatisticsStore
from proxy.config.schema import Config
from proxy.state.stores.opening import data_directory, require_store

FILE_NAME = "statistics.sqlite3"


def find_file(config: Config) -> Path | None:
    """The file with the statistics; None for a store in memory or on a server."""
    scheme, _, rest = config.store.partition("://")
    if scheme != "sqlite":
        return None
    return Path(f"{rest[1:]}.statistics").expanduser() if rest else data_directory() / FILE_NAME


def open_statistics(config: Config, log: Any) -> StatisticsStore:
    """The store of statistics. Raises ConfigError if the Redis package is missing or the URL is unusable."""
    if config.store == "memory":
        return MemoryStatistics()
    file = find_file(config)
    if file is not None:
        return SqliteStatistics(file, log=log)
    require_store(config)
    from proxy.account.statistics.redis import RedisStatistics  # noqa: PLC0415  an optional package

    return RedisStatistics(config.store)
