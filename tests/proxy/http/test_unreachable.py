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


def tls_error(reason: str | None) -> ssl.SSLError:
    error = ssl.SSLError(1, "x")
    error.reason = reason
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
    ("error", "sentence"),
    [
        (connector_error(errno.ECONNREFUSED), r"up\.test:443 could not be reached: it refuses connections; "),
        (connector_error(errno.ENETUNREACH), r"up\.test:443 could not be reached: there is no network route to it; "),
        (connector_error(errno.ETIMEDOUT), r"up\.test:443 could not be reached: connection timed out; "),
        (connector_error(0), r"up\.test:443 could not be reached; "),
        (aiohttp.ServerDisconnectedError(), r"up\.test:443 closed the connection before it answered; "),
        (connector_error(errno.ECONNRESET), r"up\.test:443 closed the connection before it answered; "),
        (aiohttp.ClientResponseError(None, ()), r"the response of up\.test:443 is not HTTP; "),
        (aiohttp.ClientError(), r"up\.test:443 could not be reached; "),
    ],
)
def test_a_connection_that_fails_is_told_by_its_cause(error: Exception, sentence: str) -> None:
    """The configuration key with the URL is named."""
    assert re.match(sentence + KEY_END, tell(error))


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (aiohttp.ConnectionTimeoutError(), r"up\.test:443 could not be reached within 3 seconds; check upstream\.base"),
        (
            caused(aiohttp.ConnectionTimeoutError(), TunnelTimeoutError()),
            r"up\.test:443 did not finish the TLS handshake within 3 seconds; .*connect_timeout_seconds",
        ),
        (TimeoutError(), r"up\.test:443 did not answer in time \(no byte for 7 seconds\); .*read_timeout_seconds"),
    ],
)
def test_a_time_out_names_its_limit(error: Exception, sentence: str) -> None:
    """In seconds, with the key that sets it."""
    assert re.match(sentence, tell(error))


def test_a_time_out_before_a_proxy_names_the_proxy() -> None:
    """The URL of the forward proxy may be wrong."""
    assert re.search(rf"through {PROXY_END} within 10 seconds; check upstream\.proxy,", tell(
        aiohttp.ConnectionTimeoutError(), PROXIED
    ))  # fmt: skip


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


def test_a_failure_behind_the_proxy_is_the_upstreams() -> None:
    """The message says through which forward proxy the request went."""
    said = tell(aiohttp.ServerDisconnectedError(), PROXIED)
    assert re.match(rf"up\.test:443 closed the connection through {PROXY_END} before it answered; {KEY_END}", said)


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


@pytest.mark.parametrize(
    ("found", "is_told"), [((None, None), True), (("file", None), False), ((None, "folder"), False)]
)
def test_a_machine_without_authorities_is_told(
    found: tuple[str | None, str | None], monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    """For example in a bare container."""
    paths = ssl.DefaultVerifyPaths(*found, "SSL_CERT_FILE", "", "SSL_CERT_DIR", "")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    assert ("this machine has no list of authorities" in tell(certificate_error(20))) is is_told


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "wants a client certificate; set upstream.client_cert_file"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "refuses the TLS handshake; it may want a client certificate; set"),
        ("TLSV1_ALERT_UNKNOWN_CA", "refuses our certificate; check upstream.client_cert_file"),
        ("WRONG_VERSION_NUMBER", "does not speak TLS; check whether its URL should begin with http://"),
    ],
)
def test_a_handshake_that_fails_is_told_by_its_reason(reason: str, words: str) -> None:
    """With the key to set."""
    assert tell(tls_error(reason)).startswith(f"up.test:443 {words}")


@pytest.mark.parametrize(("reason", "words"), [("NO_SHARED_CIPHER", "no shared cipher"), (None, "no reason given")])
def test_another_reason_is_told_in_openssls_words(reason: str | None, words: str) -> None:
    """Plainly written."""
    assert tell(tls_error(reason)).startswith(f"no TLS connection to up.test:443 could be made ({words}); ")


def test_only_https_hints_at_certificates() -> None:
    """With TLS 1.3, a server may close the connection without an alert if the client certificate is missing."""
    assert "client_cert_file" in tell(aiohttp.ServerDisconnectedError())
    plain = UpstreamConfig(base_url="http://up.test/v1")
    assert "client_cert_file" not in tell(aiohttp.ServerDisconnectedError(), plain)
    assert "client_cert_file" not in tell(connector_error(errno.ECONNREFUSED))


@pytest.mark.parametrize(
    ("url", "name"), [("http://h/x", "h:80"), ("https://h:1", "h:1"), ("http://[::1]:9/", "[::1]:9")]
)
def test_a_host_is_named_with_its_port(url: str, name: str) -> None:
    """In the form HOST:PORT."""
    assert name_host(URL(url)) == name
