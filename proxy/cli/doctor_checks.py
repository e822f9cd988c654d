"""The checks of `trimtab doctor`: upstreams, listen address, store, processes, open files, sessions.

Law: a check asks only what `trimtab serve` would ask, and changes only what opening a store changes. No key and no
password is shown. A key goes only to its own upstream.
"""

import asyncio
import errno
import re
import resource
import secrets
import socket
from collections import Counter
from contextlib import suppress
from http.client import HTTPException
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import msgspec
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from trimtab.proxy.cli.healthcheck import read_page
from trimtab.proxy.config.network import SETTING, has_several, read_servers
from trimtab.proxy.config.schema import Config, UpstreamConfig
from trimtab.proxy.config.values import split_address
from trimtab.proxy.http.client import UpstreamClient, read_bounded
from trimtab.proxy.http.errors import ProxyError
from trimtab.proxy.http.headers import Headers, write_key
from trimtab.proxy.models.discovery import MAX_ANSWER_BYTES, Windows, ask_for_models, discover, read_list
from trimtab.proxy.server.workers.supervisor import count_cores, count_workers
from trimtab.proxy.store.opening import FILE_NAME, data_directory
from trimtab.proxy.store.store import SummaryStore
from trimtab.proxy.telemetry.savings import count

MAIN_UPSTREAM = "upstream"
TIMEOUT_SECONDS = 5.0  # For an upstream's list of models. Chosen: as long as the discovery of context windows may take.
FILES_PER_REQUEST = 2  # the client's connection and the upstream's
OTHER_FILES = 64  # Open files apart from requests, such as listeners and the store. Chosen: more than there are.

_ERROR_TYPE = re.compile("[A-Za-z]+(?:Error|Exception)")

Level = Literal["ok", "warning", "error"]
MAX_PAGE_BYTES = 8 * 1024 * 1024  # chosen: several times the page of a busy server
_METRIC = "trimtab_sessions_without_summaries_total"


class Finding(msgspec.Struct, frozen=True):
    """The result of a check. level: `error` if something will fail. found: a phrase that follows `subject`."""

    subject: str
    level: Level
    found: str
    advice: str | None = None


class CheckLog(msgspec.Struct):
    """Used instead of the log: warnings become findings. engines: by vocabulary. store_fault: None if it works."""

    findings: list[Finding] = []
    engines: dict[str, str] = {}
    store_fault: str | None = None

    def info(self, event: str, **fields: Any) -> None:
        if event == "engine":
            self.engines[fields["vocabulary"]] = fields["engine"]

    def warning(self, event: str, **fields: Any) -> None:
        """Keep a warning as `serve` would log it, without types of Python errors, which do not help an operator."""
        if event == "store_unreachable":  # check_store reports it
            self.store_fault = str(fields["reason"])
            return
        told = ", ".join(f"{key} {value}" for key, value in fields.items() if not _ERROR_TYPE.fullmatch(str(value)))
        level: Level = "error" if event == "recordings_fail" else "warning"  # there, what was asked for will not work
        self.findings.append(Finding("log", level, f"{event}: {told}"))

    error = warning


class Answer(msgspec.Struct, frozen=True):
    finding: Finding
    names: tuple[str, ...] = ()
    windows: Windows = msgspec.field(default_factory=lambda: Windows({}, None))


async def ask_upstream(
    client: UpstreamClient, upstream: UpstreamConfig, key: str | None, path: str = MAIN_UPSTREAM
) -> Answer:
    """Ask an upstream, at this place in the configuration, for its models, with the key if clients bring theirs."""
    headers: Headers = write_key(key, upstream) if key and upstream.shown == "client" else []
    answer = await _ask_for_models(client, upstream, headers, path)
    found, advice, route = answer.finding.found, answer.finding.advice or "", str(upstream.route)
    found += f"; {route}" if route not in found else ""
    told = (text.replace(f"({SETTING})", f"({path}.proxy)") for text in (found, advice))
    return replace(
        answer, finding=Finding(answer.finding.subject, answer.finding.level, next(told), next(told) or None)
    )


async def _ask_for_models(client: UpstreamClient, upstream: UpstreamConfig, headers: Headers, path: str) -> Answer:
    subject = f"{path} {upstream.base_url}"
    url, asked = ask_for_models(upstream, headers)
    where = "check base_url, and that the server runs and can be reached from here"
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS), client.send("GET", url, asked, None, upstream) as answer:
            body = await read_bounded(answer, MAX_ANSWER_BYTES) or b""
    except TimeoutError:
        proxy = upstream.route.proxy
        if proxy is not None:
            told_by = proxy.told_by.replace(SETTING, f"{path}.proxy")
            where = f"check {told_by} and base_url; the proxy or the server may hang, or cannot be reached from here"
        return Answer(Finding(subject, "error", f"does not answer within {TIMEOUT_SECONDS:g} seconds", where))
    except ProxyError as error:
        found, _, advice = str(error).partition("; ")
        return Answer(Finding(subject, "error", found, advice.replace("upstream.", f"{path}.") or where))
    except (aiohttp.ClientError, OSError):
        return Answer(Finding(subject, "error", "broke off its answer", where))
    names = await asyncio.to_thread(read_list, body) if answer.status == 200 else ()
    finding = _judge(upstream, answer.status, len(names), path, shows_key=bool(headers) or upstream.shown == "key")
    windows = await discover(client, upstream, headers)
    sizes = {*windows.by_model.values()} or {windows.every or 0}
    slots = count(windows.slots, "slot") if windows.slots else ""
    if slots and len(sizes) == 1:  # else some models are not loaded
        slots += f" of {sizes.pop():,} tokens"
    tokenizer = "counts with its own tokenizer" if windows.reading.samples else ""
    told = ", ".join(filter(None, (windows.engine, slots, tokenizer)))
    return Answer(replace(finding, found="; ".join(filter(None, (finding.found, told)))), names, windows)


def _judge(upstream: UpstreamConfig, status: int, listed: int, path: str, *, shows_key: bool) -> Finding:
    """The finding for an upstream that answers so. Over plain HTTP, a forward proxy may have given the status."""
    subject = f"{path} {upstream.base_url}"
    is_main = path == MAIN_UPSTREAM  # --key-from-env is only for this one
    if status not in {401, 403} or listed:
        finding = _judge_list(subject, status, listed)
    elif upstream.shown == "none":
        advice = f"set {path}.api_key, or {path}.credential: client if the clients' own keys are meant for it"
        finding = Finding(subject, "error", f"requires a key ({status}), but trimtab sends none", advice)
    elif shows_key:
        advice = f"check {path}.api_key" + (", or the variable that --key-from-env names" if is_main else "")
        finding = Finding(subject, "error", f"refuses the key ({status})", advice)
    else:
        look = "trimtab doctor --key-from-env OPENAI_API_KEY" if is_main else f"set {path}.api_key"
        advice = f"nothing if clients bring their own key; to see its models: {look}"
        finding = Finding(subject, "warning", f"answers; requires a key ({status})", advice)
    proxy = upstream.route.proxy
    if proxy is None or not upstream.base_url.startswith("http:") or not (status == 403 or status >= 500):
        return finding
    return replace(finding, advice="; or ".join(filter(None, (finding.advice, f"{proxy} refused the request"))))


def _judge_list(subject: str, status: int, listed: int) -> Finding:
    if listed:
        return Finding(subject, "ok", f"answers; models listed: {listed}")
    if 300 <= status < 400:
        advice = "set base_url to the URL that it redirects to; trimtab follows no redirects"
        return Finding(subject, "warning", f"redirects elsewhere ({status})", advice)
    found = "answers, but not with a list of models" if status == 200 else f"lists no models ({status})"
    advice = "check base_url: most servers need /v1 at its end; if it is right, set context_window for its models"
    return Finding(subject, "warning", found, advice)


async def check_address(config: Config) -> Finding:
    subject, (host, port) = f"listen {config.listen}", split_address(config.listen)
    fault = await asyncio.to_thread(_try_to_listen, host, port)
    is_taken = fault is not None and fault.errno == errno.EADDRINUSE
    if is_taken and await asyncio.to_thread(_read, config.listen, "/trimtab/health") == b'{"status":"ok"}':
        return Finding(subject, "ok", "in use by a running trimtab")
    if fault is not None:
        found = f"not available: {(fault.strerror or 'no reason given').lower()}"
        return Finding(subject, "error", found, "stop what listens there, or choose another address: --set listen=...")
    if config.listen in config.open_addresses():
        advice = "listen on 127.0.0.1, or set client_keys"
        return Finding(subject, "warning", "free; anyone who reaches it can use the proxy", advice)
    return Finding(subject, "ok", "free")


def _try_to_listen(host: str, port: int) -> OSError | None:
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                probe.listen(1)
    except OSError as error:
        return error
    return None


async def check_store(config: Config, store: SummaryStore, log: CheckLog) -> Finding:
    """Whether the store opens and can be written. Writes only a lease, which ends by itself. `log`: the store's."""
    subject = f"store {_describe_store(config)}"
    probe = f"doctor-{secrets.token_hex(8)}"
    lease = await store.claim(probe, 1.0)
    if lease is not None:
        await store.release(probe, lease)
    if config.store == "memory":
        return Finding(subject, "warning", "works; summaries are lost when the process ends", "set store: sqlite")
    if log.store_fault is not None:
        advice = "check the path, its owner and the free space, or the server; until it works, memory is used instead"
        return Finding(subject, "error", f"fails: {log.store_fault}", advice)
    return Finding(subject, "ok", "opens and can be written")


def _describe_store(config: Config) -> str:
    """The store's kind and place, without a password."""
    scheme, _, path = config.store.partition(":///")
    if config.store == "memory":
        return "memory"
    if scheme == "sqlite":
        return f"sqlite {path or data_directory() / FILE_NAME}"
    if has_several(config.store):
        servers = read_servers(config.store)
        hosts = ",".join(f"{host}:{port}" for host, port in servers.hosts)
        return f"{scheme.partition('://')[0]} {hosts}{servers.service and '/'}{servers.service}"
    parts = urlsplit(config.store)
    return f"{parts.scheme} {parts.hostname or 'localhost'}:{parts.port or 6379}{parts.path}"


def check_workers(config: Config) -> Finding:
    subject, workers = f"workers {config.workers}", count_workers(config)
    automatic = count_workers(config.model_copy(update={"workers": "auto"}))
    processes, cores = f"{workers} process{'' if workers == 1 else 'es'}", count(count_cores(), "core")
    found = f"{processes}; auto gives {automatic} here, with {cores}"
    if workers > 1 and config.store == "memory":
        return Finding(subject, "warning", f"{found}; each makes its own summaries", "set store: sqlite")
    return Finding(subject, "ok", found)


def check_open_files(config: Config) -> Finding:
    workers = count_workers(config)
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES_PER_REQUEST * config.as_worker_of(workers).limits.max_concurrent_requests + OTHER_FILES
    found = f"up to {needed} needed{' by each process' if workers > 1 else ''}; the limit is {allowed}"
    if allowed in {resource.RLIM_INFINITY, -1} or allowed >= needed:
        return Finding("open files", "ok", found)
    advice = (
        f"raise the limit (ulimit -Hn {needed}, or LimitNOFILE= of systemd), or lower limits.max_concurrent_requests"
    )
    return Finding("open files", "warning", found, advice)


async def check_sessions(config: Config) -> list[Finding]:
    """How many sessions of a running trimtab have fallen to digests; nothing if none runs or its page is not shown."""
    listen, path = config.metrics_listen or config.listen, config.metrics_path
    headers = {"Authorization": f"Bearer {config.admin_token}"} if config.admin_token else {}
    page = (await asyncio.to_thread(_read, listen, path, headers, MAX_PAGE_BYTES)).decode("utf-8", "replace")
    reasons = Counter[str]()
    with suppress(ValueError):
        families = text_string_to_metric_families(page) if page.startswith("# HELP") else ()
        for sample in (one for family in families for one in family.samples):
            if sample.name == _METRIC and sample.value:
                reasons[sample.labels.get("reason", "")] += int(sample.value)
    if not reasons:
        return []
    told = ", ".join(f"{reason} {number}" for reason, number in sorted(reasons.items()))
    found = f"{reasons.total()} since its start have digests instead of summaries: {told}"
    advice = "look at the log's summary events; name models that can write summaries in summary.model"
    return [Finding("sessions of the running trimtab", "warning", found, advice)]


def _read(listen: str, path: str, headers: dict[str, str] | None = None, most_bytes: int = 64) -> bytes:
    """A page of a server at this address; empty if it does not answer."""
    try:
        return read_page(listen, path, headers, most_bytes=most_bytes)
    except (OSError, HTTPException):
        return b""
