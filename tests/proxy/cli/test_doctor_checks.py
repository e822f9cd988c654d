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
    """Its names and windows are read."""
    _tell(upstream, 200, orjson.dumps(MODELS))
    answer = await _ask(asking, upstream)

    assert (answer.finding.level, answer.finding.found) == ("ok", "answers; models listed: 2")
    assert (answer.names, answer.windows) == (("m", "n"), Windows({"m": 8192}, None))


@pytest.mark.parametrize(
    ("status", "key", "expected"),
    [
        (401, None, ("warning", "requires a key (401)", "--key-from-env")),
        (401, "sk-PLANTED", ("error", "refuses the key (401)", "upstream.api_key")),
        (404, None, ("warning", "lists no models (404)", "base_url")),
        (500, None, ("warning", "lists no models (500)", "context_window")),
        (307, None, ("warning", "redirects elsewhere (307)", "follows no redirects")),
    ],
)
async def test_each_refusal_says_what_to_do(asking, upstream, status, key, expected) -> None:
    """The advice does not show the key."""
    _tell(upstream, status, b"no, PLANTED")
    for answer in (await _ask(asking, upstream, key), await _ask(asking, upstream, api_key=key)):
        level, found, advice = expected
        assert answer.finding.level == level
        assert found in answer.finding.found
        assert advice in answer.finding.advice
        assert "PLANTED" not in str(answer)


async def test_what_to_do_is_said_of_the_upstream_that_was_asked(asking, upstream) -> None:
    """--key-from-env is advised only for the main one."""
    _tell(upstream, 401)
    config = UpstreamConfig(base_url=upstream.url, api_key="sk-PLANTED")
    finding = (await ask_upstream(asking, config, None, "upstreams.other")).finding

    assert finding.subject == f"upstreams.other {upstream.url}"
    assert "upstreams.other.api_key" in finding.advice
    assert "--key-from-env" not in finding.advice


async def test_an_upstream_that_wants_a_key_and_is_to_be_shown_none_will_fail(asking, upstream) -> None:
    """Such an upstream gets no client's key, and no key of --key-from-env."""
    _tell(upstream, 401)
    for config in (
        UpstreamConfig(base_url=upstream.url).named(),
        UpstreamConfig(base_url=upstream.url, credential="none"),
    ):
        finding = (await ask_upstream(asking, config, "sk-PLANTED", "upstreams.other")).finding

        assert (finding.level, finding.found) == ("error", "requires a key (401), but trimtab sends none")
        assert "upstreams.other.credential: client" in str(finding.advice)
    assert all(not question.header("authorization") for question in upstream.requests)


@pytest.mark.parametrize(
    "body", [b"", b"hello", b"[" * 9000, b"\xff\x00", b'{"data": 5}', b"[]", b'{"data": [{"id": 5}]}']
)
async def test_an_answer_that_is_no_list_is_a_warning(asking, upstream, body) -> None:
    """An example is a web page that base_url leads to."""
    _tell(upstream, 200, body)
    finding = (await _ask(asking, upstream)).finding

    assert (finding.level, finding.found) == ("warning", "answers, but not with a list of models")


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


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
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


@pytest.mark.parametrize("says", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
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


@pytest.mark.parametrize(
    ("workers", "allowed", "level", "found"),
    [
        (1, 264, "ok", "up to 264 needed; the limit is 264"),
        (1, 263, "warning", "up to 264 needed; the limit is 263"),
        (1, resource.RLIM_INFINITY, "ok", ""),
        (4, 114, "ok", "up to 114 needed by each process; the limit is 114"),
        (4, 113, "warning", "up to 114 needed by each process; the limit is 113"),
        ("auto", 132, "ok", "up to 132 needed by each process; the limit is 132"),
    ],
)
def test_each_process_has_a_limit_of_open_files_of_its_own(monkeypatch, workers, allowed, level, found) -> None:
    """Of two files for each request, and some others: 25 of 100 requests for each of four, 34 for each of three."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (40, allowed))
    monkeypatch.setattr(supervisor, "count_cores", lambda *_: 3)
    settings = (f"workers={workers}", "limits.max_concurrent_requests=100")
    finding = check_open_files(load_config(settings=settings, environment={}))

    assert (finding.level, found in finding.found) == (level, True)
    assert ("ulimit -Hn " in str(finding.advice)) == (level == "warning")


@pytest.mark.parametrize(
    ("settings", "level", "found"),
    [
        (("workers=2",), "ok", "2 processes; auto gives 3 here, with 3 cores"),
        (("workers=auto",), "ok", "3 processes; auto gives 3 here, with 3 cores"),
        (("workers=auto", "limits.max_memory_bytes=536870912"), "ok", "1 process; auto gives 1 here, with 3 cores"),
        (("workers=1", "store=memory"), "ok", "1 process; auto gives 3 here, with 3 cores"),
        (
            ("workers=2", "store=memory"),
            "warning",
            "2 processes; auto gives 3 here, with 3 cores; each makes its own summaries",
        ),
    ],
)
def test_it_is_said_how_many_processes_there_would_be(monkeypatch, settings, level, found) -> None:
    """So is the number that `auto` gives here, by cores and memory. Several processes need a store that they share."""
    for module in (supervisor, checks):
        monkeypatch.setattr(module, "count_cores", lambda *_: 3)
    finding = check_workers(load_config(settings=settings, environment={}))

    assert finding.subject == f"workers {settings[0].partition('=')[2]}"
    assert (finding.level, finding.found) == (level, found)
    assert (finding.advice is None) == (level == "ok")


@pytest.mark.parametrize(
    ("scheme", "proxy", "status", "may_be"),
    [
        ("http", "http://p.example:3128", 403, True),
        ("http", "http://p.example:3128", 502, True),
        ("http", "http://p.example:3128", 404, False),
        ("http", "null", 502, False),
        ("https", "http://p.example:3128", 502, False),
    ],
)
def test_a_forward_proxy_may_have_refused_what_it_can_read(scheme, proxy, status, *, may_be) -> None:
    config = load_config(
        settings=(f"upstream.base_url={scheme}://a.example/v1", f"upstream.proxy={proxy}"), environment={}
    )
    told = checks._judge(config.upstream, status, 0, "upstream", shows_key=True)
    assert ("p.example:3128 (upstream.proxy) refused the request" in str(told.advice)) is may_be
    with_models = checks._judge(config.upstream, status, 3, "upstream", shows_key=True).advice
    assert with_models is None or (
        may_be and with_models.endswith("p.example:3128 (upstream.proxy) refused the request")
    )
    assert "None" not in str(with_models or "")
