"""Messages for a missing response: what is wrong, on which host, what to do. No class names, no credentials."""

import errno
import re
import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from yarl import URL

from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.aiohttp_fixes.tunnels import TunnelError, TunnelTimeoutError
from trimtab.proxy.http.errors import UpstreamTimeoutError, UpstreamUnreachableError
from trimtab.proxy.http.unreachable import describe_refusal, explain, name_host

UP = URL("https://up.test/v1/models")
DIRECT = UpstreamConfig(base_url="https://up.test/v1", connect_timeout_seconds=3, read_timeout_seconds=7)
PROXIED = UpstreamConfig(base_url="https://up.test/v1", proxy="http://user:PLANTED@proxy.test:3128")
FAILED = r"up\.test:443 could not be reached"
CLOSED = r"up\.test:443 closed the connection"
KEY_END = r"check upstream\.base_url"


PROXY_END = r"the proxy proxy\.test:3128 \(upstream\.proxy\)"


def connector_error(number: int, host: str = "up.test", port: int = 443) -> aiohttp.ClientConnectorError:
    key = ConnectionKey(host, port, True, True, None, None, None)  # noqa: FBT003 - as aiohttp has it
    return aiohttp.ClientConnectorError(key, OSError(number, "in a library's words"))


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def certificate_error(code: int, words: str = "words of OpenSSL") -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "x")
    error.verify_code, error.verify_message = code, words
    return error


def tell(error: BaseException, upstream: UpstreamConfig = DIRECT) -> str:
    """The message, after checking what must hold for every message."""
    explained = explain(error, UP, upstream)  # type: ignore[arg-type]
    said = str(explained)
    assert isinstance(explained, UpstreamTimeoutError if isinstance(error, TimeoutError) else UpstreamUnreachableError)
    assert not re.search(r"Error|Exception|aiohttp|Errno|PLANTED|in a library's words", said)
    assert re.fullmatch(r"[^;]+; .*[^.]", said, re.DOTALL), said
    return said


@pytest.mark.parametrize(
    ("error", "upstream", "sentence"),
    [
        (connector_error(errno.ECONNREFUSED), DIRECT, rf"{FAILED}: it refuses connections; {KEY_END}"),
        (connector_error(errno.ENETUNREACH), DIRECT, rf"{FAILED}: there is no network route to it; {KEY_END}"),
        (connector_error(errno.ETIMEDOUT), DIRECT, rf"{FAILED}: connection timed out; {KEY_END}"),
        (connector_error(0), DIRECT, rf"{FAILED}; {KEY_END}"),
        (aiohttp.ClientError(), DIRECT, rf"{FAILED}; {KEY_END}"),
        (aiohttp.ServerDisconnectedError(), DIRECT, rf"{CLOSED} before it answered; {KEY_END}"),
        (connector_error(errno.ECONNRESET), DIRECT, rf"{CLOSED} before it answered; {KEY_END}"),
        (aiohttp.ServerDisconnectedError(), PROXIED, rf"{CLOSED} through {PROXY_END} before it answered; {KEY_END}"),
        (aiohttp.ClientResponseError(None, ()), DIRECT, rf"the response of up\.test:443 is not HTTP; {KEY_END}"),
        (aiohttp.ConnectionTimeoutError(), DIRECT, rf"{FAILED} within 3 seconds; check upstream\.base"),
        (aiohttp.ConnectionTimeoutError(), PROXIED, rf".* {PROXY_END} within 10 seconds; check upstream\.proxy,"),
        (
            caused(aiohttp.ConnectionTimeoutError(), TunnelTimeoutError()),
            DIRECT,
            r"up\.test:443 did not finish the TLS handshake within 3 seconds; .*connect_timeout_seconds",
        ),
        (
            TimeoutError(),
            DIRECT,
            r"up\.test:443 did not answer in time \(no byte for 7 seconds\); .*read_timeout_seconds",
        ),
    ],
)
def test_a_connection_that_fails_is_told_by_its_cause(
    error: Exception, upstream: UpstreamConfig, sentence: str
) -> None:
    """The configuration key is named, a time-out in seconds, and through which forward proxy the request went."""
    assert re.match(sentence, tell(error, upstream))


@pytest.mark.parametrize(
    "error",
    [
        connector_error(errno.ECONNREFUSED, "proxy.test", 3128),
        caused(TunnelError(), ConnectionResetError(errno.ECONNRESET, "in a library's words")),
    ],
)
def test_a_failure_of_the_proxy_is_not_told_as_the_upstreams(error: Exception) -> None:
    """The forward proxy's address is named, and the setting that it comes from."""
    said = tell(error, PROXIED)
    assert re.match(PROXY_END, said)
    assert "up.test" not in said
    assert "check upstream.proxy" in said


@pytest.mark.parametrize(
    ("upstream", "status", "sentence"),
    [
        (PROXIED, 407, rf"{PROXY_END} refuses the user name and password \(407\); check upstream\.proxy"),
        (
            UpstreamConfig(base_url="https://up.test", proxy="http://proxy.test:3128"),
            407,
            rf"{PROXY_END} wants a user name and a password \(407\); write them into upstream\.proxy: ",
        ),
        (PROXIED, 403, rf"{PROXY_END} answered 403 when it was asked for up\.test:443; "),
    ],
)
def test_a_proxy_that_refuses_is_told_by_its_status(upstream: UpstreamConfig, status: int, sentence: str) -> None:
    """Whether a password is missing or wrong, or the upstream is not allowed; never the password itself."""
    assert upstream.route.proxy is not None
    said = describe_refusal(upstream.route.proxy, status, UP)
    assert re.match(sentence, said)
    assert "PLANTED" not in said
    error = aiohttp.ClientHttpProxyError(None, (), status=status)  # type: ignore[arg-type]
    assert tell(error, upstream) == said


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (9, "is not valid yet; check the certificate and this machine's clock"),
        (10, "has expired; have it renewed"),
        (18, "is self-signed and not trusted; set upstream.ca_file"),
        (20, "comes from an authority that this machine does not trust; set upstream.ca_file"),
        (19, "comes from an authority that this machine does not trust; set upstream.ca_file"),
        (21, "comes without the certificates that link it to an authority; have the server send the whole chain"),
        (23, "has been revoked; have it replaced"),
        (62, "is for another name; write the name"),
        (64, "is for another IP address; write the name"),
        (99, "is not accepted: words of OpenSSL; set upstream.ca_file"),
    ],
)
def test_a_certificate_that_is_refused_is_told_by_its_fault(code: int, words: str) -> None:
    """OpenSSL's code decides. For an unknown code, OpenSSL's own text is used."""
    for error in (certificate_error(code), caused(aiohttp.ClientError(), certificate_error(code))):
        assert tell(error).startswith(f"the certificate of up.test:443 {words}")


def test_authorities_of_the_environment_that_cannot_be_read_are_told_with_it() -> None:
    """They may be the reason why the certificate is not trusted."""
    upstream = DIRECT.routed_by({"SSL_CERT_FILE": "/nowhere/missing.pem"})
    assert tell(certificate_error(20), upstream).endswith(f"({upstream.trust_fault})")
    assert "SSL_CERT_FILE names /nowhere" not in tell(certificate_error(20))


def test_a_machine_without_authorities_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example in a bare container."""
    for found, is_told in (((None, None), True), (("file", None), False), ((None, "folder"), False)):
        paths = ssl.DefaultVerifyPaths(*found, "SSL_CERT_FILE", "", "SSL_CERT_DIR", "")
        monkeypatch.setattr(ssl, "get_default_verify_paths", lambda paths=paths: paths)
        assert ("this machine has no list of authorities" in tell(certificate_error(20))) is is_told


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "up.test:443 wants a client certificate; set upstream.client_cert_file"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "up.test:443 refuses the TLS handshake; it may want a client certificate;"),
        ("TLSV1_ALERT_UNKNOWN_CA", "up.test:443 refuses our certificate; check upstream.client_cert_file"),
        ("WRONG_VERSION_NUMBER", "up.test:443 does not speak TLS; check whether its URL should begin with http://"),
        ("NO_SHARED_CIPHER", "no TLS connection to up.test:443 could be made (no shared cipher); "),
        (None, "no TLS connection to up.test:443 could be made (no reason given); "),
    ],
)
def test_a_handshake_that_fails_is_told_by_its_reason(reason: str | None, words: str) -> None:
    """With the key to set. Another reason is told in OpenSSL's words."""
    error = ssl.SSLError(1, "x")
    error.reason = reason
    assert tell(error).startswith(words)


def test_only_https_hints_at_certificates() -> None:
    """With TLS 1.3, a server may close the connection without an alert if the client certificate is missing."""
    assert "client_cert_file" in tell(aiohttp.ServerDisconnectedError())
    plain = UpstreamConfig(base_url="http://up.test/v1")
    assert "client_cert_file" not in tell(aiohttp.ServerDisconnectedError(), plain)
    assert "client_cert_file" not in tell(connector_error(errno.ECONNREFUSED))


def test_a_host_is_named_with_its_port() -> None:
    for url, name in (("http://h/x", "h:80"), ("https://h:1", "h:1"), ("http://[::1]:9/", "[::1]:9")):
        assert name_host(URL(url)) == name
