"""Every credential of the configuration, so that nothing that is kept of a request shows one.

Law: values to hide, never values to use.
"""

from collections.abc import Iterator
from functools import lru_cache

from proxy.config.network.passwords import find_passwords
from proxy.config.policies.overlay import Same
from proxy.config.schema import Config


def list_secrets(config: Config) -> tuple[str, ...]:
    """The credentials of the operator, then the keys of the clients; the same object for the same configuration.

    Those of the operator are the keys of upstreams, the admin token, and the passwords of the store and of forward
    proxies, also if the environment names the proxy.
    """
    return _list(Same(config))


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
