"""Whether the proxy on this machine accepts requests: a status for containers, and a message for people."""

import asyncio
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from upstreams.raw import run_raw_upstream

from trimtab.proxy.cli.healthcheck import DRAINING, PATH, READY, UnwellError, ask_readiness, healthcheck


def answer(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body)


async def run(*arguments: str, **environment: str) -> Result:
    """The command, in a thread of its own, so that servers of the test can answer it."""
    return await asyncio.to_thread(CliRunner(env=environment).invoke, healthcheck, arguments, catch_exceptions=False)


async def test_a_proxy_that_is_ready_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked directly, even if the environment names a forward proxy."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with run_raw_upstream() as upstream:
        upstream.answer = answer(READY)
        result = await run("--listen", upstream.url.removeprefix("http://").removesuffix("/v1"))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "ready\n", "")
    assert [request.target for request in upstream.requests] == [PATH.encode()]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (answer(DRAINING, b"503 Service Unavailable"), r"/trimtab/ready is draining"),
        (answer(READY + b" and more"), r"/trimtab/ready is not answered by trimtab; check listen"),
        (b"no HTTP\r\n\r\n", r"/trimtab/ready does not answer: no answer in time, or not an http answer; if serve"),
    ],
    ids=["draining", "another answer", "no HTTP"],
)
async def test_any_other_answer_is_told(said: bytes, sentence: str) -> None:
    """The status is 1, and the message goes to standard error."""
    async with run_raw_upstream() as upstream:
        upstream.answer = said
        result = await run("--listen", upstream.url.removeprefix("http://").removesuffix("/v1"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert sentence in result.stderr


def test_nobody_there_is_told() -> None:
    """The message says what may be wrong."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(UnwellError, match=rf"http://{listen}/trimtab/ready does not answer: connection refused; "):
            ask_readiness(listen)


def test_a_port_that_stands_for_any_cannot_be_asked() -> None:
    """The operator must name the port."""
    with pytest.raises(UnwellError, match="--listen HOST:PORT"):
        ask_readiness("127.0.0.1:0")


async def test_the_address_is_the_one_that_serve_takes(tmp_path: Path) -> None:
    """--listen wins over --set, --set over the environment, the environment over the file."""
    file = tmp_path / "trimtab.yaml"
    async with run_raw_upstream() as upstream:
        upstream.answer = answer(READY)
        here, nowhere = upstream.url.removeprefix("http://").removesuffix("/v1"), "127.0.0.1:0"
        file.write_text(f"listen: {here}\n")
        assert (await run("--config", str(file))).exit_code == 0
        assert (await run(TRIMTAB_CONFIG=str(file))).exit_code == 0
        assert (await run("--config", str(file), TRIMTAB_LISTEN=nowhere)).exit_code == 1
        assert (await run("--set", f"listen={here}", TRIMTAB_LISTEN=nowhere)).exit_code == 0
        assert (await run("--listen", nowhere, "--set", f"listen={here}")).exit_code == 1
