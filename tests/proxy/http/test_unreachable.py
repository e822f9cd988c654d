"""Why no answer came: what is wrong; what to do. What real TLS leads to is held by end_to_end/test_tls.py."""

import errno
import re
import socket

import aiohttp
import pytest
from yarl import URL

from proxy.config.network.forward_proxies import ForwardProxy
from proxy.config.schema import UpstreamConfig
from proxy.http.errors import UpstreamTimeoutError, UpstreamUnreachableError
from proxy.http.unreachable import describe_refusal, explain, name_host

UPSTREAM = UpstreamConfig(base_url="https://up:8443/v1")
TARGET = URL("https://up:8443/v1/models")
PROXY = ForwardProxy("http://gate:3128", "HTTPS_PROXY")


def _behind(outer: Exception, *causes: Exception) -> Exception:
    """An error with its causes, as they are raised from one another."""
    error: Exception = outer
    for cause in causes:
        error.__cause__ = cause
        error = cause
    return outer


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "it refuses connections; check upstream.base_url"),
        (OSError(errno.ENETUNREACH, "x"), "no network leads there; check upstream.base_url"),
        (OSError(errno.EMFILE, "x"), "could not be reached: too many open files; check"),
        (aiohttp.ServerDisconnectedError(), "closed the connection before it answered; check"),
        (
            _behind(aiohttp.ClientError(), OSError(), ConnectionResetError(errno.ECONNRESET, "x")),
            "if it wants a client",
        ),
        (aiohttp.ClientError(), "up:8443 could not be reached; check upstream.base_url"),
    ],
)
def test_each_fault_says_what_is_wrong_and_what_to_do(error: Exception, words: str) -> None:
    told = explain(error, TARGET, UPSTREAM)
    assert isinstance(told, UpstreamUnreachableError)
    assert words in str(told)
    assert re.fullmatch(r"[^;]+; .+", str(told))


def test_a_name_that_cannot_be_resolved_is_told_from_a_host_that_is_out() -> None:
    key = aiohttp.client_reqrep.ConnectionKey("up", 8443, True, True, None, None, None)  # noqa: FBT003  aiohttp's own
    error = aiohttp.ClientConnectorDNSError(key, socket.gaierror(socket.EAI_NONAME, "x"))
    assert "its name cannot be resolved" in str(explain(error, TARGET, UPSTREAM))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (aiohttp.ConnectionTimeoutError(), "could not be reached within"),
        (aiohttp.SocketTimeoutError(), "did not answer in time (no byte for"),
    ],
)
def test_a_timeout_names_the_key_that_sets_it(error: Exception, words: str) -> None:
    told = explain(error, TARGET, UPSTREAM)
    assert isinstance(told, UpstreamTimeoutError)
    assert words in str(told)
    assert "timeout_seconds" in str(told)


@pytest.mark.parametrize(
    ("authorization", "status", "words"),
    [
        (None, 407, "wants a user name and a password (407); write them into HTTPS_PROXY"),
        ("Basic c2VjcmV0", 407, "refuses the user name and password that it is shown (407); check HTTPS_PROXY"),
        (None, 403, "answered 403 when it was asked for up:8443"),
    ],
)
def test_a_proxy_that_refuses_is_named_and_its_password_is_not(
    authorization: str | None, status: int, words: str
) -> None:
    told = describe_refusal(ForwardProxy(PROXY.url, PROXY.told_by, authorization), status, TARGET)
    assert words in told
    assert "gate:3128" in told
    assert "c2VjcmV0" not in told


def test_a_host_is_named_with_its_port() -> None:
    assert (name_host(TARGET), name_host(URL("http://[::1]/"))) == ("up:8443", "[::1]:80")
