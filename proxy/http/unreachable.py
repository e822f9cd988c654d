"""Messages for an upstream that sent no response: what is wrong, on which host, and what to configure.

Law: a message has the form `what is wrong; what to do`. It never names a class of a library and never repeats a
credential.
"""

import errno
import os
import ssl
from collections.abc import Iterator

import aiohttp
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from yarl import URL

from trimtab.proxy.config.network import ForwardProxy
from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.aiohttp_fixes.tunnels import TunnelError, TunnelTimeoutError
from trimtab.proxy.http.errors import ProxyError, UpstreamInvalidError, UpstreamTimeoutError, UpstreamUnreachableError
from trimtab.proxy.http.headers import MAX_HEAD_BYTES, MAX_HEADER_FIELDS

PROXY_AUTHENTICATION_REQUIRED = 407  # Source: RFC 9110 section 15.5.8
_TRUST = "set upstream.ca_file (or SSL_CERT_FILE) to a PEM file with the certificate of"
_CLOCK = "and this machine's clock"
_OWN_AUTHORITY = "comes from an authority that this machine does not trust", f"{_TRUST} that authority"
_WRITE_NAME = "write the name that the certificate has into the URL"
_CERTIFICATES = {
    **dict.fromkeys((2, 19, 20), _OWN_AUTHORITY),
    9: ("is not valid yet", f"check the certificate {_CLOCK}"),
    10: ("has expired", f"have it renewed, or check {_CLOCK[4:]}"),
    18: ("is self-signed and not trusted", f"{_TRUST} that server"),
    21: (
        "comes without the certificates that link it to an authority",
        f"have the server send the whole chain, or {_TRUST} its issuer",
    ),
    23: ("has been revoked", "have it replaced"),
    62: ("is for another name", _WRITE_NAME),
    64: ("is for another IP address", _WRITE_NAME),
}
"""Messages for a certificate that is refused, by OpenSSL's verify code: what is wrong, and what to do. Source:
X509_STORE_CTX_get_error(3)."""
_WANTS_CERTIFICATE = frozenset({"TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE"})
"""Alerts of servers that miss a client certificate: with TLS 1.3, and with earlier versions. The second alert may also
have other causes."""
_REFUSES_CERTIFICATE = frozenset({
    "TLSV1_ALERT_UNKNOWN_CA", "TLSV1_ALERT_ACCESS_DENIED", "SSLV3_ALERT_BAD_CERTIFICATE",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED", "SSLV3_ALERT_CERTIFICATE_REVOKED", "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE", "TLSV1_ALERT_DECRYPT_ERROR",
})  # fmt: skip
_SPEAKS_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"})
_HUNG_UP = frozenset({errno.ECONNRESET, errno.EPIPE})
_NO_WAY = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL})


def explain(error: Exception, url: URL, upstream: UpstreamConfig) -> ProxyError:
    proxy = upstream.route.proxy
    if isinstance(error, TimeoutError):
        return UpstreamTimeoutError(_describe_timeout(error, url, upstream))
    if proxy is not None and isinstance(error, aiohttp.ClientHttpProxyError):
        return UpstreamUnreachableError(describe_refusal(proxy, error.status, url))
    if proxy is not None and isinstance(error, TunnelError):
        return UpstreamUnreachableError(_describe(error.__cause__, str(proxy), f"check {proxy.told_by}"))
    # aiohttp's parser has no class for too many header fields; only the text of its message shows it.
    heads = [cause for cause in _find_causes(error) if isinstance(cause, BadHttpMessage)]
    if any(isinstance(cause, LineTooLong) or "Too many headers" in cause.message for cause in heads):
        return UpstreamInvalidError(describe_large_head(url))
    # aiohttp's own errors inherit from those of `ssl`, but only their causes carry the details.
    causes = (cause for cause in _find_causes(error) if not isinstance(cause, aiohttp.ClientError))
    tls = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
    end = proxy if proxy is not None and _is_of_proxy(error, proxy, url) else None
    name, advice = (
        (str(end), f"check {end.told_by}") if end is not None else (name_host(url), "check upstream.base_url")
    )
    if tls is not None:
        return UpstreamUnreachableError(_describe_tls(tls, name, upstream))
    said = _describe(error, name, advice, f" {upstream.route}" if proxy is not None and end is None else "")
    return UpstreamUnreachableError(said + (_hint_at_certificates(upstream) if _has_hung_up(error) else ""))


def name_host(url: URL) -> str:
    return f"{url.host_subcomponent}:{url.port}"


def describe_refusal(proxy: ForwardProxy, status: int, url: URL) -> str:
    if status == PROXY_AUTHENTICATION_REQUIRED:
        key = proxy.told_by
        if proxy.authorization is None:
            return (
                f"{proxy} wants a user name and a password (407); write them into {key}: http://USER:PASSWORD@HOST:PORT"
            )
        return f"{proxy} refuses the user name and password (407); check {key}"
    around = "ask its operator to allow that host, or bypass the proxy with NO_PROXY or upstream.proxy: direct"
    return f"{proxy} answered {status} when it was asked for {name_host(url)}; {around}"


def describe_large_head(url: URL) -> str:
    limits = f"more than {MAX_HEADER_FIELDS} header fields, or more than {MAX_HEAD_BYTES} bytes of them"
    return f"{name_host(url)} answered with {limits}; have it send fewer or shorter ones"


def _describe_timeout(error: TimeoutError, url: URL, upstream: UpstreamConfig) -> str:
    proxy = upstream.route.proxy
    through = f" {upstream.route}" if proxy is not None else ""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        seconds = f"within {upstream.connect_timeout_seconds:g} seconds"
        if any(isinstance(cause, TunnelTimeoutError) for cause in _find_causes(error)):
            advice = "check upstream.base_url, or raise upstream.connect_timeout_seconds"
            return f"{name_host(url)} did not finish the TLS handshake{through} {seconds}; {advice}"
        key = proxy.told_by if proxy is not None else "upstream.base_url"
        advice = f"check {key}, or raise upstream.connect_timeout_seconds"
        return f"{name_host(url)} could not be reached{through} {seconds}; {advice}"
    silence = f"no byte for {upstream.read_timeout_seconds:g} seconds"
    return f"{name_host(url)} did not answer in time{through} ({silence}); see upstream.read_timeout_seconds"


def _find_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _is_of_proxy(error: Exception, proxy: ForwardProxy, url: URL) -> bool:
    """Whether the connection to the forward proxy failed. TLS with the upstream may fail with the same errors."""
    if isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientConnectorDNSError):
        return True
    address = URL(proxy.url)
    if not isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError):
        return False
    shown = (error.host, error.port)
    return shown == (address.raw_host, address.port) and shown != (url.raw_host, url.port)


def _describe_tls(error: ssl.SSLError, name: str, upstream: UpstreamConfig) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        words = (error.verify_message or "cannot be verified").rstrip(".")
        what, advice = _CERTIFICATES.get(error.verify_code, (f"is not accepted: {words}", f"{_TRUST} its authority"))
        return f"the certificate of {name} {what}; {advice}{_describe_trust(upstream)}"
    shows = upstream.client_cert_file is not None
    if error.reason in _REFUSES_CERTIFICATE or (shows and error.reason in _WANTS_CERTIFICATE):
        return f"{name} refuses our certificate; check upstream.client_cert_file and upstream.client_key_file"
    if error.reason in _WANTS_CERTIFICATE:
        sure = (
            "wants" if error.reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED" else "refuses the TLS handshake; it may want"
        )
        return f"{name} {sure} a client certificate; set upstream.client_cert_file and upstream.client_key_file"
    if error.reason in _SPEAKS_NO_TLS:
        return f"{name} does not speak TLS; check whether its URL should begin with http:// instead of https://"
    words = (error.reason or "no reason given").replace("_", " ").lower()
    return f"no TLS connection to {name} could be made ({words}); check which versions of TLS that server supports"


def _describe_trust(upstream: UpstreamConfig) -> str:
    """A remark if the trusted authorities cannot be read, or if the machine has none, like a bare container."""
    if upstream.trust_fault is not None:
        return f" ({upstream.trust_fault})"
    paths = ssl.get_default_verify_paths()
    if paths.cafile or paths.capath:
        return ""
    return f" (this machine has no list of authorities, and {paths.openssl_cafile_env} points to no file)"


def _has_hung_up(error: BaseException | None) -> bool:
    """Whether the other side closed the connection; in a TLS handshake only the causes show it, often without errno."""
    return any(
        (isinstance(cause, OSError) and cause.errno in _HUNG_UP)
        or isinstance(cause, aiohttp.ServerDisconnectedError | ConnectionError)
        for cause in _find_causes(error)
    )


def _hint_at_certificates(upstream: UpstreamConfig) -> str:
    # With TLS 1.3, a server refuses a client certificate after the handshake, often without an alert that arrives.
    if not upstream.base_url.startswith("https:"):
        return ""
    if upstream.client_cert_file is None:
        return "; if it wants a client certificate, set upstream.client_cert_file and upstream.client_key_file"
    return "; it may refuse the certificate of upstream.client_cert_file"


def _describe(error: BaseException | None, name: str, advice: str, through: str = "") -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"{name} could not be reached: its name cannot be resolved; {advice}"
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ECONNREFUSED:
        return f"{name} could not be reached: it refuses connections; {advice}, and that the server runs"
    if number in _NO_WAY:
        return f"{name} could not be reached: there is no network route to it; {advice}"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the response of {name}{through} is not HTTP; {advice}"
    if _has_hung_up(error):
        return f"{name} closed the connection{through} before it answered; {advice}, or try again"
    words = f": {os.strerror(number).lower()}" if number is not None and number > 0 else ""
    return f"{name} could not be reached{through}{words}; {advice}"
