"""The certificate files of the configuration as a TLS context: trusted authorities and the client certificate.

Law: the files are read with the configuration. A message says what is wrong with a file, and never contains any of a
private key.
"""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

_KEY_MARK = "PRIVATE KEY-----"
_CERTIFICATE_MARK = "-----BEGIN CERTIFICATE-----"
_TRUSTED_MARK = "-----BEGIN TRUSTED CERTIFICATE-----"
ALPN = ["http/1.1"]
"""The only protocol that trimtab speaks to upstreams."""


class CertificateFileError(ValueError):
    """A certificate file cannot be used. The message says why."""


class _PassphraseError(Exception):
    pass


def check_authorities(file: str) -> str:
    """Return the file itself. Raises CertificateFileError if it has no readable certificates of authorities."""
    _load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), file)
    return file


def find_trust_fault(environment: Mapping[str, str]) -> str | None:
    """What is wrong with the file of SSL_CERT_FILE, as a sentence. OpenSSL ignores such a file silently."""
    file = environment.get("SSL_CERT_FILE")
    if not file:
        return None
    try:
        check_authorities(file)
    except CertificateFileError as error:
        return f"SSL_CERT_FILE names {file}, which {error}"
    return None


def check_certificate(file: str) -> str:
    if _CERTIFICATE_MARK not in _read(file):
        message = "contains no certificate in PEM form"
        raise CertificateFileError(message)
    return file


def check_key(certificate_file: str, key_file: str | None) -> None:
    """Raises CertificateFileError if the private key cannot be read. `key_file` None: it is in the same file."""
    if _KEY_MARK not in _read(key_file or certificate_file):
        message = (
            "contains no private key in PEM form"
            if key_file
            else "is not enough: client_cert_file contains no private key"
        )
        raise CertificateFileError(message)
    _load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate_file, key_file)


def make_context(ca_file: str | None, certificate_file: str | None, key_file: str | None) -> ssl.SSLContext:
    """A TLS context with the system's authorities, those of `ca_file`, and a client certificate, if there is one.

    Raises CertificateFileError.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(ALPN)
    if ca_file is not None:
        # Trust the operator's certificate even if it is not a root. Python does so by default since 3.13.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _load_authorities(context, ca_file)
    if certificate_file is not None:
        _load_certificate(context, certificate_file, key_file)
    return context


def _read(file: str) -> str:
    try:
        return _find(file).read_text(encoding="ascii", errors="replace")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        message = f"cannot be read: {(reason or 'no file can have this name').lower()}"
        raise CertificateFileError(message) from error


def _find(file: str) -> Path:
    return Path(os.path.expanduser(file))  # noqa: PTH111 - Path.expanduser raises if there is no such user


def _load_authorities(context: ssl.SSLContext, file: str) -> None:
    text = _read(file)
    if _CERTIFICATE_MARK not in text and _TRUSTED_MARK not in text:
        message = "contains no certificate in PEM form"
        raise CertificateFileError(message)
    try:
        context.load_verify_locations(_find(file))
    except (ssl.SSLError, OSError, ValueError) as error:
        message = "contains a certificate that cannot be read"
        raise CertificateFileError(message) from error


def _load_certificate(context: ssl.SSLContext, file: str, key_file: str | None) -> None:
    def refuse() -> str:
        raise _PassphraseError  # without this function, OpenSSL would ask for the passphrase on the terminal

    key = _find(key_file) if key_file else None
    try:
        context.load_cert_chain(_find(file), key, refuse)
    except _PassphraseError as error:
        message = "contains a private key with a passphrase; store it without one"
        raise CertificateFileError(message) from error
    except (ssl.SSLError, OSError, ValueError) as error:
        belongs = getattr(error, "reason", "") == "KEY_VALUES_MISMATCH"
        message = "does not belong to client_cert_file" if belongs else "or its certificate is damaged"
        raise CertificateFileError(message) from error
