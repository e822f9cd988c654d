"""Messages for a missing response: what is wrong, on which host, what to do. No class names, no credentials."""

import errno
import re
import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from support.golden import check_golden
from yarl import URL

from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.aiohttp_fixes.tunnels import TunnelError, TunnelTimeoutError
from trimtab.proxy.http.errors import UpstreamTimeoutError, UpstreamUnreachableError
from trimtab.proxy.http.unreachable import describe_refusal, explain, name_host

UP = URL("https://up.test/v1/models")
DIRECT = UpstreamConfig(base_url="https://up.test/v1", connect_timeout_seconds=3, read_timeout_seconds=7)
PLAIN = UpstreamConfig(base_url="http://up.test/v1")
PROXIED = UpstreamConfig(base_url="https://up.test/v1", proxy="http://user:PLANTED@proxy.test:3128")
OPEN_PROXY = UpstreamConfig(base_url="https://up.test/v1", proxy="http://proxy.test:3128")


def connector_error(number: int, host: str = "up.test", port: int = 443) -> aiohttp.ClientConnectorError:
    key = ConnectionKey(host, port, True, True, None, None, None)  # noqa: FBT003 - as aiohttp has it
    return aiohttp.ClientConnectorError(key, OSError(number, "in a library's words"))


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def certificate_error(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "x")
    error.verify_code, error.verify_message = code, "words of OpenSSL"
    return error


def tls_error(reason: str | None) -> ssl.SSLError:
    error = ssl.SSLError(1, "x")
    error.reason = reason
    return error


def refusal(status: int) -> aiohttp.ClientHttpProxyError:
    return aiohttp.ClientHttpProxyError(None, (), status=status)  # type: ignore[arg-type]


def tell(error: BaseException, upstream: UpstreamConfig = DIRECT) -> str:
    """The message, after checking what must hold for every message."""
    explained = explain(error, UP, upstream)  # type: ignore[arg-type]
    said = str(explained)
    assert isinstance(explained, UpstreamTimeoutError if isinstance(error, TimeoutError) else UpstreamUnreachableError)
    assert not re.search(r"Error|Exception|aiohttp|Errno|PLANTED|in a library's words", said)
    assert re.fullmatch(r"[^;]+; .*[^.]", said, re.DOTALL), said
    return said


FAULTS = {
    "connection refused": (connector_error(errno.ECONNREFUSED), DIRECT),
    "no route": (connector_error(errno.ENETUNREACH), DIRECT),
    "another number": (connector_error(errno.ETIMEDOUT), DIRECT),
    "no number": (connector_error(0), DIRECT),
    "another fault": (aiohttp.ClientError(), DIRECT),
    "closed": (aiohttp.ServerDisconnectedError(), DIRECT),
    "closed, without TLS": (aiohttp.ServerDisconnectedError(), PLAIN),
    "closed, behind a proxy": (aiohttp.ServerDisconnectedError(), PROXIED),
    "reset": (connector_error(errno.ECONNRESET), DIRECT),
    "no HTTP": (aiohttp.ClientResponseError(None, ()), DIRECT),  # type: ignore[arg-type]
    "no connection in time": (aiohttp.ConnectionTimeoutError(), DIRECT),
    "no connection in time, with a proxy": (aiohttp.ConnectionTimeoutError(), PROXIED),
    "no handshake in time": (caused(aiohttp.ConnectionTimeoutError(), TunnelTimeoutError()), DIRECT),
    "no byte in time": (TimeoutError(), DIRECT),
    "the proxy refuses connections": (connector_error(errno.ECONNREFUSED, "proxy.test", 3128), PROXIED),
    "the proxy resets": (caused(TunnelError(), ConnectionResetError(errno.ECONNRESET, "x")), PROXIED),
    "the proxy refuses a password": (refusal(407), PROXIED),
    "the proxy wants a password": (refusal(407), OPEN_PROXY),
    "the proxy forbids": (refusal(403), PROXIED),
    **{f"certificate: {code}": (certificate_error(code), DIRECT) for code in (9, 10, 18, 19, 20, 21, 23, 62, 64, 99)},
    "TLS: a certificate is wanted": (tls_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"), DIRECT),
    "TLS: handshake refused": (tls_error("SSLV3_ALERT_HANDSHAKE_FAILURE"), DIRECT),
    "TLS: our certificate is refused": (tls_error("TLSV1_ALERT_UNKNOWN_CA"), DIRECT),
    "TLS: not spoken": (tls_error("WRONG_VERSION_NUMBER"), DIRECT),
    "TLS: another reason": (tls_error("NO_SHARED_CIPHER"), DIRECT),
    "TLS: no reason": (tls_error(None), DIRECT),
}


def test_each_fault_is_told_by_its_cause_with_the_key_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = ssl.DefaultVerifyPaths("file", None, "SSL_CERT_FILE", "", "SSL_CERT_DIR", "")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    check_golden("unreachable", {name: tell(*fault) for name, fault in FAULTS.items()})
    assert tell(caused(aiohttp.ClientError(), certificate_error(10))) == tell(certificate_error(10))


def test_a_proxy_that_refuses_a_tunnel_is_told_alike_by_who_asked_for_it() -> None:
    assert PROXIED.route.proxy is not None
    assert describe_refusal(PROXIED.route.proxy, 403, UP) == tell(refusal(403), PROXIED)


def test_authorities_of_the_environment_that_cannot_be_read_are_told_with_it() -> None:
    """They may be the reason why the certificate is not trusted."""
    upstream = DIRECT.routed_by({"SSL_CERT_FILE": "/nowhere/missing.pem"})
    assert tell(certificate_error(20), upstream).endswith(f"({upstream.trust_fault})")
    assert "SSL_CERT_FILE names /nowhere" not in tell(certificate_error(20))


def test_a_machine_without_authorities_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for found, is_told in (((None, None), True), (("file", None), False), ((None, "folder"), False)):
        paths = ssl.DefaultVerifyPaths(*found, "SSL_CERT_FILE", "", "SSL_CERT_DIR", "")
        monkeypatch.setattr(ssl, "get_default_verify_paths", lambda paths=paths: paths)
        assert ("this machine has no list of authorities" in tell(certificate_error(20))) is is_told


def test_a_host_is_named_with_its_port() -> None:
    for url, name in (("http://h/x", "h:80"), ("https://h:1", "h:1"), ("http://[::1]:9/", "[::1]:9")):
        assert name_host(URL(url)) == name
