"""Reload: read the configuration again while the proxy runs.

Law: an invalid file changes nothing and is logged. A request keeps the configuration that it began with.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from trimtab.proxy.account.recordings.folder import find_fault
from trimtab.proxy.account.recordings.writing import measure_recordings
from trimtab.proxy.catalogue.prices import load_catalogue
from trimtab.proxy.compaction.pool import CACHES_BYTES
from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import find_unknown_variables
from trimtab.proxy.config.schema import Config
from trimtab.proxy.memory import bound_caches, bound_requests
from trimtab.proxy.server.admin.opening import adopt_dashboard, measure_dashboard
from trimtab.proxy.server.router import Current
from trimtab.proxy.tasks import Tasks

FIXED_KEYS = ("listen", "metrics_listen", "workers", "store", "store_ttl_seconds", "record", "log", "tracing")
"""Keys that change only with a restart."""
STAYS = "the previous configuration stays in force"


def keep_fixed(before: Config, config: Config) -> tuple[Config, list[str]]:
    fixed = {key: getattr(before, key) for key in FIXED_KEYS}
    return config.model_copy(update=fixed), [key for key, value in fixed.items() if getattr(config, key) != value]


def measure_caches(config: Config) -> int:
    return bound_caches(config.limits.max_memory_bytes, CACHES_BYTES)


def measure_requests(config: Config) -> int:
    told_bytes = measure_dashboard(config) + measure_recordings(config)
    return bound_requests(config.limits.max_memory_bytes, measure_caches(config), told_bytes)


def adopt(current: Current, config: Config) -> list[str]:
    services = current.services
    config, kept = keep_fixed(services.config, config)
    # Limits shared by all requests change at once; requests in flight are counted against them.
    services.uploads.rebound(config.limits.max_held_bytes)
    services.memory.add(measure_requests(config) - measure_requests(services.config))
    services.compactors.rebound(measure_caches(config))
    if services.recordings is not None:
        services.recordings.most_bytes = measure_recordings(config)
    adopt_dashboard(services.past, config)
    services.uploads.silence_seconds = config.limits.client_silence_seconds
    clients = config.clients
    if services.budgets is not None:
        services.budgets.adopt(clients.budgets)
    tenancy = replace(services.tenancy, tenant=config.tenant, client_keys=clients.keys, client_names=clients.names)
    current.services = structs.replace(services, config=config, tenancy=tenancy)
    for upstream in config.discovered_upstreams():
        services.models.seek_windows(upstream)
    return kept


def warn_of_readers(config: Config, log: Any) -> None:
    """Log each address that other machines reach without a key, and that the dashboard shows text of conversations."""
    for address, meaning in config.open_addresses().items():
        log.warning("listening_wide", listen=address, meaning=meaning)
    if config.dashboard.enabled and config.dashboard.keep_text:
        meaning = "the dashboard keeps text of conversations in memory, and shows it to everyone who may open it"
        log.warning("text_kept", meaning=meaning)


def warn_of_recording(config: Config, log: Any) -> None:
    if config.record is None:
        return
    if fault := find_fault(Path(config.record.dir).expanduser()):
        meaning = "requests are served, but not recorded until this folder can be written"
        log.warning("recordings_fail", dir=config.record.dir, reason=fault, meaning=meaning)
        return
    meaning = "the text of messages is written to this folder, without keys; only its owner can read it"
    log.warning("recording", dir=config.record.dir, meaning=meaning)


def warn_of_unknown_variables(log: Any) -> None:
    found = find_unknown_variables()
    if found:
        meaning = "they set no key; a service named trimtab in Kubernetes sets such variables, too"
        near = {name: similar for name, similar in found.items() if similar is not None}
        log.warning("unknown_variables", names=list(found), similar=near, meaning=meaning)


def tell_upstreams(config: Config, log: Any) -> None:
    """Log of each upstream its forward proxy, without a password; an unreadable CA file; a credential without TLS."""
    for upstream in (config.upstream, *config.upstreams.values()):
        proxy, base_url = upstream.route.proxy, upstream.base_url
        if upstream.trust_fault is not None and base_url.startswith("https:"):
            log.warning("authorities_unreadable", upstream=base_url, reason=upstream.trust_fault)
        if proxy is not None:
            log.info("upstream_proxy", upstream=base_url, proxy=proxy.url, named_by=proxy.told_by)
        if upstream.bares_credential:
            whose = {"key": "the operator's", "client": "each client's"}[upstream.shown]
            meaning = f"{whose} credential crosses the network unencrypted; use https://, or credential: none"
            log.warning("credential_without_tls", upstream=base_url, meaning=meaning)


async def reload_when_told(told: asyncio.Event, current: Current, load: Callable[[], Config] | None, log: Any) -> None:
    """Read the configuration whenever told, until cancelled. load: raises ConfigError; None without a file.

    The log names wrong keys, and no value that may be a secret. After any other failure, the next event tries again.
    """
    metrics = current.services.recorder.metrics
    tasks = Tasks(lambda error: tell_failed(error, log, lambda at: metrics.note_reload(at=at)))
    try:
        while True:
            await told.wait()
            told.clear()
            if load is None:
                log.info("nothing_to_reload", meaning="there is no configuration file; see --config")
            else:
                await asyncio.wait({tasks.start(_reload(current, load, log))})
    finally:
        await tasks.close()


def tell_failed(error: BaseException, log: Any, note: Callable[[None], None]) -> None:
    """Log why a configuration was not read, after noting it: whoever sees the log sees the note."""
    note(None)
    if isinstance(error, ConfigError):
        for problem in str(error).splitlines():
            log.error("configuration_invalid", problem=problem, meaning=STAYS)
    else:  # only the type: the text of the error may quote a key
        log.error("reload_failed", error=type(error).__name__, meaning=STAYS)


async def _reload(current: Current, load: Callable[[], Config], log: Any) -> None:
    config = await asyncio.to_thread(load)
    await asyncio.to_thread(load_catalogue, config.list_base_urls())
    metrics = current.services.recorder.metrics
    for key in adopt(current, config):
        meaning = "it changes only with a restart; the old value stays in force"
        log.warning("reload_incomplete", key=key, meaning=meaning)
    metrics.note_reload(at=time.time())
    warn_of_readers(current.services.config, log)
    log.info("reloaded", upstream=config.upstream.base_url, mode=config.tell_modes(), models=len(config.models))
    tell_upstreams(config, log)
