"""Upstreams with TLS: which certificates are trusted, and the message for one that is not."""

import asyncio
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import orjson
import pytest
import uvloop
from multidict import CIMultiDict
from programs.serving import read_log, serving
from support.authority import Authority
from support.client import CHAT, post
from upstreams.raw import run_raw_upstream
from yarl import URL

from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.http.errors import UpstreamUnreachableError

each_loop = pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A certificate authority that this machine does not trust."""
    return Authority(tmp_path)


def _answer(connection: socket.socket, tls: ssl.SSLContext) -> None:
    secure = tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
    try:
        secure.do_handshake()
    except ssl.SSLError:
        # read everything, or a reset would overtake the alert
        with socket.socket(fileno=secure.detach()) as refused:
            refused.shutdown(socket.SHUT_WR)
            while refused.recv(65_536):
                pass
        return
    secure.recv(65_536)
    secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
    secure.close()


@contextmanager
def blocking_server(tls: ssl.SSLContext) -> Iterator[str]:
    """A server on blocking sockets. Unlike asyncio's, it reports why it refuses a handshake. Yields its base URL."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with suppress(OSError), connection:
                    _answer(connection, tls)

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(30)


async def _ask(upstream: UpstreamConfig) -> int:
    """The status of a response. Raises UpstreamUnreachableError."""
    client = UpstreamClient()
    try:
        async with client.send("GET", URL(upstream.base_url), CIMultiDict(), None, upstream) as response:
            return response.status
    finally:
        await client.close()
        await _see_the_end(URL(upstream.base_url))


async def _see_the_end(url: URL) -> None:
    """Wait until our connection is closed at both ends. The server accepts one at a time, so a second one shows it.

    After a failed handshake, uvloop closes its end only after the server has closed.
    """
    with suppress(ConnectionError):
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 30)
        writer.close()
        await writer.wait_closed()


def ask(loop_factory: Callable[[], asyncio.AbstractEventLoop], **keys: object) -> str:
    """The status of a response; or the error: it has a problem and an advice, and no internal name of a library."""
    upstream = UpstreamConfig(**keys).routed_by(os.environ)
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        try:
            return str(runner.run(_ask(upstream)))
        except UpstreamUnreachableError as error:
            said = str(error)
    assert "; " in said
    assert not any(word in said for word in ("Error", "SSL:", "ssl.", "_ssl", "aiohttp", "Errno"))
    return said


STRANGE = "comes from an authority that this machine does not trust; set upstream.ca_file (or SSL_CERT_FILE)"


@each_loop
@pytest.mark.parametrize(
    ("names", "how", "sentence"),
    [
        (["127.0.0.1"], {}, STRANGE),
        (["127.0.0.1"], {"self_signed": True}, "is self-signed and not trusted; set upstream.ca_file"),
        (["127.0.0.1"], {"since": -5, "until": -2}, "has expired; have it renewed"),
        (["127.0.0.1"], {"since": 5, "until": 9}, "is not valid yet; check"),
        (["localhost"], {}, "is for another IP address; write the name"),
    ],
)
def test_a_certificate_that_is_not_accepted_is_described(
    names, how, sentence, loop_factory, authority, tmp_path
) -> None:
    """The message names the problem, the server, and the setting. An authority is trusted once it is named."""
    other = Authority(tmp_path, "Another")
    with blocking_server(authority.serve(*names, **how)) as url:
        named = {"base_url": url, "ca_file": str(authority.ca_file)}
        said = ask(loop_factory, **named | ({"ca_file": str(other.ca_file)} if sentence is STRANGE else {}))
        assert said.startswith(f"the certificate of {URL(url).authority} ")
        assert sentence in said
        if sentence is STRANGE:
            assert STRANGE in ask(loop_factory, base_url=url)
            assert ask(loop_factory, **named) == "200"


def test_a_named_authority_is_trusted_besides_the_systems(authority, tmp_path, monkeypatch) -> None:
    """So one process can use an upstream on the internet and one in the company."""
    system = Authority(tmp_path, "The system's")
    monkeypatch.setenv("SSL_CERT_FILE", str(system.ca_file))
    with blocking_server(system.serve("127.0.0.1")) as url:
        assert ask(asyncio.new_event_loop, base_url=url, ca_file=str(authority.ca_file)) == "200"


@each_loop
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_certificate_is_shown(version, loop_factory, authority, tmp_path) -> None:
    """The message says if none is configured or if the server refuses it. One file may hold certificate and key."""
    server = authority.serve("127.0.0.1")
    server.verify_mode = ssl.CERT_REQUIRED
    server.maximum_version = version
    server.load_verify_locations(authority.ca_file)
    certificate, key = authority.issue("me")
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    wrong, wrong_key = Authority(tmp_path, "Another").issue("me")
    with blocking_server(server) as url:
        keys = {"base_url": url, "ca_file": str(authority.ca_file)}
        missing = ask(loop_factory, **keys)
        assert "a client certificate; set upstream.client_cert_file and upstream.client_key_file" in missing
        refused = ask(loop_factory, **keys, client_cert_file=str(wrong), client_key_file=str(wrong_key))
        assert "refuses our certificate; check upstream.client_cert_file" in refused
        assert ask(loop_factory, **keys, client_cert_file=str(certificate), client_key_file=str(key)) == "200"
        assert ask(loop_factory, **keys, client_cert_file=str(both)) == "200"


async def test_certificates_are_read_again_with_the_configuration(client, authority, tmp_path) -> None:
    """SIGHUP loads another authority. An unreadable one changes nothing, and the log names its line in the file."""
    other = Authority(tmp_path, "Another")
    ca_file, file = tmp_path / "company.pem", tmp_path / "trimtab.yaml"
    ca_file.write_bytes(other.ca_file.read_bytes())
    async with run_raw_upstream(authority.serve("127.0.0.1")) as raw:
        file.write_text(f"store: memory\nupstream:\n  base_url: {raw.url}\n  ca_file: {ca_file}\n")
        async with serving("--config", str(file)) as (process, url):
            response, answer = await post(client, url + "/chat/completions", CHAT)
            assert (response.status, "ca_file" in orjson.loads(answer)["error"]["message"]) == (502, True)
            ca_file.write_text("nothing")
            process.send_signal(signal.SIGHUP)
            problem = (await read_log(process, "configuration_invalid"))[-1]["problem"]
            assert problem.startswith("upstream.ca_file (line 4): ")
            assert problem.endswith(" contains no certificate in PEM form")
            ca_file.write_bytes(authority.ca_file.read_bytes())
            process.send_signal(signal.SIGHUP)
            await read_log(process, "reloaded")
            assert (await post(client, url + "/chat/completions", CHAT))[0].status == 200
