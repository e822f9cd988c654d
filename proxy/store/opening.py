"""Opens the store that the configuration names.

Law: the proxy starts if the store is unreachable now, but not if the store can never be reached.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.schema import Config
from trimtab.proxy.store.layered import LayeredStore
from trimtab.proxy.store.sqlite import SqliteStore
from trimtab.proxy.store.store import MemoryStore, SummaryStore

FILE_NAME = "summaries.sqlite3"


def data_directory() -> Path:
    return Path(platformdirs.user_data_dir("trimtab", appauthor=False))


def find_key_file(config: Config) -> Path | None:
    if config.store == "memory":
        return None
    scheme, _, path = config.store.partition(":///")
    return Path(f"{path}.key").expanduser() if scheme == "sqlite" and path else data_directory() / "key"


def open_store(config: Config, on_error: Callable[[str], None], log: Any) -> SummaryStore:
    """The store that the configuration names.

    `memory`; `sqlite`, a file in the data directory; `sqlite:///relative/path` or `sqlite:////absolute/path`;
    `redis://host:port/db`, `rediss://`, `valkey://`, `valkeys://`, each also with `+sentinel` or `+cluster`. The
    configuration accepts no others. Raises ConfigError if the Redis package is missing or the URL is unusable.
    """
    url, ttl_seconds = config.store, config.store_ttl_seconds
    if url == "memory":
        return MemoryStore(ttl_seconds=ttl_seconds)
    scheme, _, rest = url.partition("://")
    durable: SummaryStore
    if scheme == "sqlite":
        file = Path(rest[1:]).expanduser() if rest else data_directory() / FILE_NAME
        durable = SqliteStore(file, ttl_seconds=ttl_seconds, log=log)
    else:
        durable = _open_redis(url, ttl_seconds)
    return LayeredStore(durable, ttl_seconds=ttl_seconds, on_error=on_error, log=log)


def require_store(config: Config) -> None:
    """Raise ConfigError if the configured store can never be opened. No file is opened, and no server is asked."""
    if config.store != "memory" and config.store.partition("://")[0] != "sqlite":
        _open_redis(config.store, config.store_ttl_seconds)


def _open_redis(url: str, ttl_seconds: float) -> SummaryStore:
    # The errors do not repeat the URL, because it may contain a password.
    try:
        from trimtab.proxy.store.redis import RedisStore  # noqa: PLC0415  an optional package, and slow to import
    except ImportError as error:
        message = "store: Redis needs a package that is not installed: pip install 'trimtab[redis]'"
        raise ConfigError(message) from error
    try:
        return RedisStore(url, ttl_seconds=ttl_seconds)
    except (ValueError, TypeError) as error:
        message = "store: not a URL of a Redis server; it must look like redis://host:port/db"
        raise ConfigError(message) from error
