"""Which requests are admitted, and where the admitting key is sent."""

import asyncio
import base64
from contextlib import nullcontext
from hashlib import sha256
from itertools import product

import aiohttp
import orjson
import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from support.client import CHAT
from yarl import URL

from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import Config
from trimtab.proxy.http.errors import PagesClosedError, PageUnauthorizedError, SiteNotAllowedError, UnauthorizedError
from trimtab.proxy.server.access import admit_client, admit_reader, admit_site
from trimtab.proxy.server.app import run_proxy

KEYS = "client_keys=[key-one, key-two]"
TOKEN = Config(admin_token="boss")
BASIC = 'Basic realm="trimtab", charset="UTF-8"'


def test_a_key_that_has_ended_is_refused() -> None:
    """The client is told the day, and no key."""
    headers, text = [("Authorization", "Bearer key-one")], "client_keys: {{a: {{key: key-one, expires: {}}}}}"
    assert admit_client(load_config(text.format("2999-01-31"), environment={}), headers) == "key-one"
    with pytest.raises(UnauthorizedError, match="2020-01-31") as found:
        admit_client(load_config(text.format("2020-01-31"), environment={}), headers)
    assert "key-one" not in str(found.value)


async def test_the_log_tells_which_keys_are_used(client, start_proxy, log, tmp_path):
    """Each key once a day, by its ID and its client, so that no key in use is revoked."""
    (tmp_path / "keys").write_text("key-one\nkey-two\n")
    proxy = await start_proxy(f"client_keys={{alice: {{key_file: {tmp_path}/keys}}, bob: key-three}}")
    for key in ("key-one", "key-one", "key-three", "wrong"):
        async with client.post(f"{proxy.url}/v1/embeddings", json=CHAT, headers={"api-key": key}):
            pass
    used = [(line["client"], line["key"]) for line in log.lines if line["event"] == "key_used"]
    assert used == [("alice", sha256(b"key-one").hexdigest()[:8]), ("bob", sha256(b"key-three").hexdigest()[:8])]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer key-on"}], ids=str)
async def test_who_shows_no_known_key_is_refused(headers, client, upstream, start_proxy):
    """Only health and readiness are open. Nothing is sent to the upstream."""
    proxy = await start_proxy(KEYS)
    for path in ("/v1/chat/completions", "/props", "/", "/trimtab/health/x", "/trimtab/", "/metrics"):
        async with client.post(proxy.url + path, json=CHAT, headers=headers) as response:
            error = orjson.loads(await response.read())["error"]
            is_page = path.startswith(("/trimtab/", "/metrics"))
            told = response.status, error["code"], response.headers.get("WWW-Authenticate")
        assert told == ((403, "pages_closed", None) if is_page else (401, "invalid_api_key", "Bearer"))
        assert error["type"] == "trimtab_error"
        assert ("admin_token" if is_page else "client_keys") in error["message"]
        assert "key-" not in error["message"]
    for path in ("/trimtab/health", "/trimtab/ready"):
        async with client.get(proxy.url + path, headers=headers) as response:
            assert response.status == 200
    assert upstream.requests == []


async def test_the_key_is_asked_for_before_the_body(start_proxy):
    """A stranger is answered before its body has arrived. It gets no invitation to send its body."""
    proxy = await start_proxy(KEYS)
    url = URL(proxy.url)
    for expect in (b"", b"Expect: 100-continue\r\n"):
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30000000\r\n%b\r\n" % expect
        )
        assert await asyncio.wait_for(reader.readline(), 30) == b"HTTP/1.1 401 Unauthorized\r\n"
        writer.close()
        await writer.wait_closed()


async def test_a_websocket_needs_the_key_too(client, upstream, start_proxy):
    """It is refused before the upstream is asked, and admitted with the key."""

    async def accept(_recorded, request):
        socket = aiohttp.web.WebSocketResponse()
        await socket.prepare(request)
        await socket.close()
        return socket

    upstream.answer = accept
    proxy = await start_proxy(KEYS)
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await client.ws_connect(proxy.url + "/v1/realtime")
    assert caught.value.status == 401
    assert upstream.requests == []
    async with client.ws_connect(proxy.url + "/v1/realtime", headers={"x-trimtab-key": "key-one"}) as socket:
        assert (await socket.receive(timeout=30)).type is aiohttp.WSMsgType.CLOSE
    assert upstream.requests[0].header("x-trimtab-key") == []


async def test_refusals_are_counted_and_logged(client, start_proxy, log):
    """They are recorded like other refusals. The log line shows no part of what was sent as a key."""
    proxy = await start_proxy(KEYS, "admin_token=boss")
    async with client.post(proxy.url + "/v1/models", headers={"Authorization": "Bearer PLANTED"}) as response:
        assert response.status == 401
    async with client.get(proxy.url + "/metrics", headers={"api-key": "boss"}) as response:
        metrics = await response.text()
    assert 'outcome="refused",status="401"} 1.0' in metrics
    line = next(line for line in log.lines if line["event"] == "request")
    assert (line["status"], line["outcome"], line["error"]) == (401, "refused", "invalid_api_key")
    assert "PLANTED" not in str(log.lines) + metrics


async def test_what_opened_the_door_goes_upstream_only_as_the_clients_own_credential(client, upstream, start_proxy):
    """`Authorization` is sent as usual to an upstream without its own key. `x-trimtab-key` is never sent."""
    for settings, expected in (((), ["Bearer theirs"]), (("upstream.api_key=ours",), ["Bearer ours"])):
        proxy = await start_proxy(KEYS, *settings)
        for path in ("/v1/chat/completions", "/v1/embeddings"):
            headers = {"Authorization": "Bearer theirs", "x-trimtab-key": "key-one"}
            async with client.post(proxy.url + path, json=CHAT, headers=headers) as response:
                assert response.status == 200
            assert upstream.requests[-1].header("authorization") == expected
            assert "key-one" not in str(upstream.requests[-1].headers)
    proxy = await start_proxy(KEYS)
    async with client.get(proxy.url + "/v1/models", headers={"Authorization": "Bearer key-one"}) as response:
        assert response.status == 200
    assert upstream.requests[-1].header("authorization") == ["Bearer key-one"]
    assert not [question for question in upstream.questions if "key-" in str(question.headers)]


async def test_the_admin_token_opens_our_pages_and_nothing_else(client, upstream, start_proxy):
    """Clients' keys do not open our pages, and the token admits no client. Health and readiness stay open."""
    proxy = await start_proxy(KEYS, "admin_token=boss")
    expected = {
        ("/metrics", "boss"): 200,
        ("/metrics", "key-one"): 401,
        ("/metrics", ""): 401,
        ("/trimtab/nope", "boss"): 404,
        ("/trimtab/nope", "key-one"): 401,
        ("/trimtab/health", ""): 200,
        ("/trimtab/ready", "wrong"): 200,
        ("/v1/models", "boss"): 401,
        ("/v1/models", "key-one"): 200,
    }
    for (path, key), status in expected.items():
        async with client.get(proxy.url + path, headers={"Authorization": f"Bearer {key}"}) as response:
            assert (path, key, response.status) == (path, key, status)
            if status == 401:
                assert response.headers["WWW-Authenticate"] == ("Bearer" if path.startswith("/v1") else BASIC)
    assert [recorded.path for recorded in upstream.requests] == ["/v1/models"]


async def test_metrics_may_have_an_address_of_their_own(client, upstream, start_proxy):
    """That address has only our own pages. The main address neither shows the metrics nor forwards their path."""
    proxy = await start_proxy("metrics_listen=127.0.0.1:0")
    pages = proxy.metrics_url.removesuffix("/metrics")
    assert pages != proxy.url
    for path, status in (("/metrics", 200), ("/trimtab/ready", 200), ("/v1/models", 404), ("/", 404)):
        async with client.get(pages + path) as response:
            assert (path, response.status) == (path, status)
    async with client.get(proxy.url + "/metrics") as response:
        assert response.status == 404
        assert "metrics_listen" in orjson.loads(await response.read())["error"]["message"]
    assert upstream.requests == []


async def test_an_admin_token_guards_our_pages_alone_at_either_address(client, start_proxy):
    """Without keys, everybody is a client. The path of the metrics can be configured."""
    for settings in ((), ("metrics_listen=127.0.0.1:0", "metrics_path=/m")):
        proxy = await start_proxy("admin_token=boss", *settings)
        for key, status in (("boss", 200), ("x", 401)):
            async with client.get(proxy.metrics_url, headers={"Authorization": f"Bearer {key}"}) as response:
                assert response.status == status
        async with client.get(f"{proxy.url}/v1/models") as response:
            assert response.status == 200


async def test_a_drain_can_be_watched_to_its_end(client, upstream, log, compactors):
    """While the last request finishes, new connections are refused and the metrics still answer."""
    release, watched = asyncio.Event(), asyncio.Event()

    async def hold(_recorded, _request):
        await release.wait()
        return aiohttp.web.Response()

    upstream.answer = hold
    settings = ("listen=127.0.0.1:0", "metrics_listen=127.0.0.1:0", "store=memory")
    config = load_config(settings=(*settings, f"upstream.base_url={upstream.url}"), environment={})

    async def watch(metrics_url: str, ready_url: str) -> None:
        async with asyncio.timeout(30):
            while not watched.is_set():
                async with client.get(ready_url) as response:
                    if response.status == 503:
                        watched.set()
        async with client.get(metrics_url) as response:
            assert "trimtab_requests_in_flight 1.0" in await response.text()
        release.set()

    async with asyncio.TaskGroup() as tasks:
        async with run_proxy(config, log, compactors) as proxy:
            asked = tasks.create_task(client.get(proxy.url + "/v1/models"))
            await asyncio.wait_for(upstream.arrived.wait(), 30)
            ready_url = proxy.metrics_url.replace("/metrics", "/trimtab/ready")
            tasks.create_task(watch(proxy.metrics_url, ready_url))
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(proxy.metrics_url)
    assert asked.result().status == 200


def basic(password: str, user: str = "") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


OWN = ["/trimtab/", "/trimtab/api/overview", "/trimtab/api/requests", "/trimtab/api/events", "/trimtab/api/models"]
CROSS = [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}, {"Origin": "null"}]


def test_without_keys_everybody_is_a_client_and_a_reader() -> None:
    assert admit_client(Config(), []) is admit_reader(Config(), []) is None


@pytest.mark.parametrize(
    ("config", "headers", "refusal"),
    [
        (TOKEN, basic("boss"), None),
        (TOKEN, basic("boss", "me"), None),
        (TOKEN, {"Authorization": "Bearer boss"}, None),
        (TOKEN, {}, PageUnauthorizedError),
        (TOKEN, basic("bos"), PageUnauthorizedError),
        (TOKEN, basic("", "boss"), PageUnauthorizedError),
        (TOKEN, {"Authorization": "Basic Ym9zcw=="}, PageUnauthorizedError),  # without a colon
        (TOKEN, {"Authorization": "Basic %%%"}, PageUnauthorizedError),
        (TOKEN, {"Authorization": "Basic /////w=="}, PageUnauthorizedError),  # not UTF-8
        (Config(admin_token="boss", client_keys=("key-one",)), basic("key-one"), PageUnauthorizedError),
        (Config(client_keys=("key-one",)), basic("key-one"), PagesClosedError),
        (Config(client_keys=("key-one",)), {}, PagesClosedError),
    ],
)
def test_the_password_of_a_browser_is_the_token(config, headers, refusal) -> None:
    with pytest.raises(refusal) if refusal else nullcontext():
        assert admit_reader(config, [*headers.items()]) is None


@pytest.mark.parametrize("settings", [(), ("admin_token=boss", KEYS)], ids=str)
@pytest.mark.parametrize("at", ["listen", "metrics_listen"])
async def test_a_page_of_another_site_never_reads_the_dashboard(at, settings, client, start_proxy):
    """A browser sends a known password with it, so a key is not enough."""
    proxy = await start_proxy(*settings, *(["metrics_listen=127.0.0.1:0"] if at == "metrics_listen" else []))
    root = proxy.metrics_url.removesuffix("/metrics")
    for headers in (strange | basic("boss") for strange in CROSS):
        for method, path in product(("GET", "POST"), (*OWN, "/metrics")):
            async with client.request(method, root + path, headers=headers) as response:
                assert response.status == 403
        headers |= {"x-trimtab-dashboard": "1"}
        async with client.delete(f"{root}/trimtab/api/sessions/x", headers=headers) as response:
            assert response.status == 403


OPEN = load_config("")


def _is_admitted(*headers: tuple[str, str], config=OPEN, of_pages: bool = False) -> bool:
    request = make_mocked_request("GET", "/", headers=CIMultiDict(headers))
    try:
        admit_site(config, request, of_pages=of_pages)
    except SiteNotAllowedError:
        return False
    return True


@given(st.from_regex(r"[a-z0-9.\-]{1,30}\.[a-z]{2,10}(:[0-9]{1,5})?", fullmatch=True))
def test_no_name_of_the_net_leads_here(host: str) -> None:
    name = host.partition(":")[0]
    assert _is_admitted(("Host", host)) is (
        name.endswith(".localhost") or name in {"host.docker.internal", "host.containers.internal"}
    )


@given(st.ip_addresses(), st.none() | st.integers(0, 65535))
def test_every_address_is_an_own_name(address, port: int | None) -> None:
    host = f"[{address}]" if address.version == 6 else str(address)
    assert _is_admitted(("Host", host if port is None else f"{host}:{port}"))


@given(st.text(max_size=30))
def test_no_text_is_an_origin_of_ours_by_chance(origin: str) -> None:
    """An origin passes only if it is the request's own site or an installed application's."""
    if origin.partition("://")[0].lower() not in {"app", "tauri", "vscode-file", "vscode-webview"}:
        assert not _is_admitted(("Host", "localhost"), ("Origin", origin))


def test_a_request_without_these_headers_is_no_pages() -> None:
    """Browsers always send a Host. The listener's own name passes, whatever its case."""
    assert _is_admitted()
    assert _is_admitted(("Host", ""))
    assert _is_admitted(("Host", "API.localhost:1"), config=load_config("listen: api.localhost:1"))
    assert _is_admitted(("Host", "box.example"), config=load_config("allowed_hosts: ['*.Example']"))
    assert not _is_admitted(("Host", "user@localhost"))


def test_the_message_names_an_origin_only_if_it_is_plain() -> None:
    """A plain origin can be copied into the configuration. Any other text is not repeated."""
    for origin, is_named in (("https://chat.example:8443", True), ("https://x\x1b[2J", False), ("x" * 101, False)):
        request = make_mocked_request("GET", "/", headers={"Origin": origin})
        with pytest.raises(SiteNotAllowedError) as caught:
            admit_site(OPEN, request, of_pages=False)
        assert (origin in str(caught.value)) is is_named


def test_pages_share_the_listener_of_clients_unless_they_have_one() -> None:
    """If the pages have their own listener, its address and the pages' token count."""
    evil = ("Host", "evil.example")
    config = load_config("metrics_listen: 0.0.0.0:1")
    assert _is_admitted(evil, config=config, of_pages=True)
    assert not _is_admitted(evil, config=config)
    assert not _is_admitted(evil, config=load_config("metrics_listen: 127.0.0.1:1"), of_pages=True)
    assert _is_admitted(evil, config=load_config("client_keys: [k]"), of_pages=True)
