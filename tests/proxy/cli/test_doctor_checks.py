"""What `trimtab doctor` asks of upstreams, the address, the store and the system, over real sockets."""

import asyncio
import resource
import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import orjson
import pytest
from aiohttp import web
from support.golden import check_golden
from upstreams.recording import FakeUpstream

from trimtab.proxy.cli import doctor_checks as checks
from trimtab.proxy.cli.doctor_checks import (
    Answer,
    CheckLog,
    Finding,
    ask_upstream,
    check_address,
    check_open_files,
    check_store,
    check_workers,
)
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.models.discovery import Windows
from trimtab.proxy.server.workers import supervisor
from trimtab.proxy.store.opening import open_store

MODELS = {"object": "list", "data": [{"id": "m", "max_model_len": 8192}, {"id": "n"}]}


@pytest.fixture(autouse=True)
def _answers_questions(upstream: FakeUpstream) -> None:
    """Let the fake upstream answer questions for models, because these tests are about them."""
    upstream.answers_questions = True


@pytest.fixture
async def asking() -> AsyncIterator[UpstreamClient]:
    """The client with which doctor asks."""
    made = UpstreamClient()
    yield made
    await made.close()


def _tell(upstream: FakeUpstream, status: int, body: bytes = b"") -> None:
    """Answer each question for models with this status and body, and all others with 404."""

    async def answer(recorded, _request):
        known = recorded.path == "/v1/models"
        return web.Response(body=body if known else b"", status=status if known else 404)

    upstream.answer = answer


async def _ask(client: UpstreamClient, upstream: FakeUpstream, key: str | None = None, **fields: str) -> Answer:
    return await ask_upstream(client, UpstreamConfig(base_url=upstream.url, **fields), key)


async def test_a_list_of_models_is_well(asking, upstream) -> None:
    """Its names and windows are read. A proxy that is configured or avoided is named."""
    _tell(upstream, 200, orjson.dumps(MODELS))
    direct = await _ask(asking, upstream, proxy="direct")
    assert direct.finding.found == "answers; models listed: 2; directly (upstream.proxy)"
    answer = await _ask(asking, upstream)

    assert (answer.finding.level, answer.finding.found) == ("ok", "answers; models listed: 2")
    assert (answer.names, answer.windows) == (("m", "n"), Windows({"m": 8192}, None))


BODIES = (b"", b"[" * 9000, b"\xff\x00", b'{"data": 5}', b"[]", b'{"data": [{"id": 5}]}')
REFUSALS = ((401, b"no, PLANTED"), (403, b""), (404, b""), (500, b""), (307, b""))
JUDGED = (
    ("http://a.example", 502, 0),
    ("http://a.example", 404, 0),
    ("https://a.example", 502, 0),
    ("http://a.example", 403, 3),
)


async def test_what_is_found_at_an_upstream_is_told_with_what_to_do(asking, upstream) -> None:
    """The advice is that of the upstream that was asked, and shows no key. What may have refused is named, too."""
    key, told = "sk-PLANTED", {}
    named = UpstreamConfig(base_url=upstream.url).named()
    for status, body in (*REFUSALS, *((200, one) for one in BODIES)):
        _tell(upstream, status, body)
        for shown, fields in ((None, {}), (key, {}), (None, {"api_key": key}), (key, {"credential": "none"})):
            config = UpstreamConfig(base_url=upstream.url, **fields)
            findings = [(await ask_upstream(asking, config, shown)).finding]
            findings.append((await ask_upstream(asking, named if not fields else config, shown, "upstreams.x")).finding)
            if status == 401 or not (shown or fields):
                told[f"{status} {body[:20]!r}, {shown and 'a key'}, {[*fields]}"] = "\n".join(map(_write, findings))
    for base_url, status, models in JUDGED:
        config = UpstreamConfig(base_url=base_url, proxy="http://p.example:3128")
        finding = checks._judge(config, status, models, "upstream", shows_key=True)
        told[f"{status} by a proxy for {base_url}, {models} models"] = _write(finding)
    told = {title: text.replace(upstream.url, "URL") for title, text in told.items()}
    assert "PLANTED" not in "".join(told.values())
    check_golden("commands/doctor-upstreams", told)


def _write(finding: Finding) -> str:
    return f"{finding.subject}: {finding.level}: {finding.found}; {finding.advice}"


async def test_a_key_goes_to_its_own_upstream_only(asking, upstream) -> None:
    """The key of --key-from-env is sent only if the configuration has no key."""
    _tell(upstream, 404)
    for key, own, shown in (
        (None, None, []),
        ("a", None, ["Bearer a"]),
        ("a", "b", ["Bearer b"]),
        (None, "b", ["Bearer b"]),
    ):
        upstream.requests.clear()
        await _ask(asking, upstream, key, **({"api_key": own} if own else {}))
        assert upstream.requests
        assert all(recorded.header("authorization") == shown for recorded in upstream.requests)


async def test_nobody_there_is_an_error(asking) -> None:
    """Connections are refused."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        finding = (await ask_upstream(asking, UpstreamConfig(base_url=url), None)).finding

    assert (finding.level, finding.subject) == ("error", f"upstream {url}")
    assert "could not be reached" in finding.found


@pytest.mark.parametrize("says", [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
async def test_a_server_that_hangs_is_left(asking, monkeypatch, says) -> None:
    """It may hang before its answer, or in the middle of it."""
    monkeypatch.setattr(checks, "TIMEOUT_SECONDS", 0.2)
    gone = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(says)
        await reader.read(-1)
        writer.close()
        gone.set()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        finding = (await ask_upstream(asking, UpstreamConfig(base_url=url), None)).finding
        await asyncio.wait_for(gone.wait(), 30)

    assert (finding.level, finding.found) == ("error", "does not answer within 0.2 seconds")


@pytest.mark.parametrize("says", [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
async def test_a_server_that_speaks_no_http_is_an_error(asking, says) -> None:
    """So is a server that closes the connection in the middle of its answer."""

    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(says)
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        assert (await ask_upstream(asking, UpstreamConfig(base_url=url), None)).finding.level == "error"


async def _check_listen(address: str) -> tuple[str, str]:
    config = load_config(settings=(f"listen={address}",), environment={})
    finding = await check_address(config)
    assert finding.subject == f"listen {address}"
    return finding.level, finding.found


async def test_a_free_address_is_well() -> None:
    """Port 0 counts as free, too. An address that other machines reach is a warning."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    assert await _check_listen(f"127.0.0.1:{port}") == ("ok", "free")
    assert await _check_listen("127.0.0.1:0") == ("ok", "free")
    level, said = await _check_listen("0.0.0.0:0")
    assert (level, said.startswith("free; anyone")) == ("warning", True)


async def test_an_address_in_use_is_an_error(upstream, start_proxy) -> None:
    """There is no error if a running trimtab uses the address."""
    level, said = await _check_listen(upstream.url.removeprefix("http://").removesuffix("/v1"))
    assert (level, said) == ("error", "not available: address already in use")
    proxy = await start_proxy()
    running = await _check_listen(proxy.url.removeprefix("http://"))
    assert running == ("ok", "in use by a running trimtab")


async def _check_stored(url: str) -> Finding:
    log = CheckLog()
    config = load_config(settings=(f"store={url}",), environment={})
    store = open_store(config, lambda _: None, log)
    finding = await check_store(config, store, log)
    await store.close()
    assert "PLANTED" not in str(finding)
    assert log.findings == []  # the finding says it already
    return finding


async def test_a_store_is_written_to(tmp_path: Path, monkeypatch) -> None:
    """A store in memory is a warning."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    file = tmp_path / "a.sqlite3"
    for url, level, subject in (
        ("memory", "warning", "store memory"),
        ("sqlite", "ok", f"store sqlite {tmp_path}/trimtab/summaries.sqlite3"),
        (f"sqlite:///{file}", "ok", f"store sqlite {file}"),
    ):
        finding = await _check_stored(url)
        assert (finding.level, finding.subject) == (level, subject)


@pytest.mark.parametrize(
    ("url", "subject", "reason"),
    [
        ("sqlite:///{folder}/file/a.sqlite3", "sqlite {folder}/file/a.sqlite3", "file exists"),
        ("sqlite:///{folder}/file", "sqlite {folder}/file", "the file is another program's"),
        ("redis://user:PLANTED@127.0.0.1:1/2?password=PLANTED", "redis 127.0.0.1:1/2", "the server cannot be reached"),
        (
            "redis+sentinel://:PLANTED@127.0.0.1:1,127.0.0.1:2/main",
            "redis+sentinel 127.0.0.1:1,127.0.0.1:2/main",
            "no reachable sentinel knows a master of this service",
        ),
        ("rediss+cluster://:PLANTED@127.0.0.1:1", "rediss+cluster 127.0.0.1:1", "the cluster cannot be reached"),
    ],
    ids=["no folder", "another program's file", "no server", "no sentinel", "no cluster"],
)
async def test_a_store_that_fails_says_why(tmp_path: Path, url: str, subject: str, reason: str) -> None:
    """The finding itself says why, without a password."""
    with closing(sqlite3.connect(tmp_path / "file")) as other:
        other.execute("CREATE TABLE theirs (id)")
    finding = await _check_stored(url.format(folder=tmp_path))

    assert (finding.level, finding.subject) == ("error", f"store {subject.format(folder=tmp_path)}")
    assert reason in finding.found


def test_limits_of_open_files_and_numbers_of_processes_are_judged(monkeypatch) -> None:
    """Of two files for each request, and some others, each process needs its share. Several need a store they share."""
    for module in (supervisor, checks):
        monkeypatch.setattr(module, "count_cores", lambda *_: 3)
    told = {}
    for workers, allowed in ((1, 264), (1, 263), (1, resource.RLIM_INFINITY), (4, 114), (4, 113), ("auto", 132)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, allowed=allowed: (40, allowed))
        settings = (f"workers={workers}", "limits.max_concurrent_requests=100")
        finding = check_open_files(load_config(settings=settings, environment={}))
        told[f"{workers} workers, {allowed} files"] = _write(finding)
    small = "limits.max_memory_bytes=536870912"
    for settings in (("workers=2",), ("workers=auto",), ("workers=auto", small), ("workers=2", "store=memory")):
        told[" ".join(settings)] = _write(check_workers(load_config(settings=settings, environment={})))
    check_golden("commands/doctor-machine", told)
