"""Every credential of the configuration, so that nothing that is kept of a request shows one.

Law: values to hide, never values to use.
"""

from collections.abc import Iterator
from functools import lru_cache

from trimtab.proxy.config.network.urls import find_passwords
from trimtab.proxy.config.policies.policy import Same
from trimtab.proxy.config.schema import Config

MIN_NAMED_CHARS = 12
"""Chosen: as for the credentials of requests (proxy/exchange/arrival.py)."""
MAX_CACHED_CHARS = 256
"""What is found in a longer name is not kept. Chosen: longer than the names of models; bounds the memory."""


def list_secrets(config: Config) -> tuple[str, ...]:
    """The credentials of the operator, then the keys of the clients; the same object for the same configuration.

    Those of the operator are the keys of upstreams, the admin token, and the passwords of the store and of forward
    proxies, also if the environment names the proxy.
    """
    return _list(Same(config))


def find_in_name(config: Config, name: str) -> tuple[str, ...]:
    """The credentials of the configuration in a client's name for something, such as a model.

    Shorter ones than MIN_NAMED_CHARS may be a part of a name by chance.
    """
    return (_find_in if len(name) <= MAX_CACHED_CHARS else _find_in.__wrapped__)(Same(config), name)


@lru_cache(1024)
def _find_in(config: Same[Config], name: str) -> tuple[str, ...]:
    return tuple(secret for secret in _list(config) if len(secret) >= MIN_NAMED_CHARS and secret in name)


@lru_cache(4)
def _list(config: Same[Config]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(secret for secret in _find(config.value) if secret))


def _find(config: Config) -> Iterator[str]:
    for upstream in (config.upstream, *config.upstreams.values()):
        yield upstream.api_key or ""
        yield from find_passwords(upstream.proxy or "")
    yield config.admin_token or ""
    yield from find_passwords(config.store)
    yield from config.upstream.passwords
    yield from config.clients.keys
