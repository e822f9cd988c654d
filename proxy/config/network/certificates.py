"""Whose certificates are trusted, and which one we show: the files of the configuration as a TLS context.

Law: files are read when the configuration is, and what is wrong with one is said in words; nothing of a private key
reaches a message.
"""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

_KEY_MARK = "PRIVATE KEY-----"
_CERTIFICATE_MARK = "-----BEGIN CERTIFICATE-----"
_TRUSTED_MARK = "-----BEGIN TRUSTED CERTIFICATE-----"
ALPN = ["http/1.1"]


class CertificateFileError(ValueError):
    """A file cannot be used; the message says why."""


class _PassphraseError(Exception):
    """The private key is encrypted."""


def check_authorities(file: str) -> str:
    """The file, if authorities' certificates can be read from it. Raises CertificateFileError."""
    _load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), file)
    return file


def find_trust_fault(environment: Mapping[str, str]) -> str | None:
    """What is wrong with the file that SSL_CERT_FILE names, as a sentence: OpenSSL passes over it without a word."""
    file = environment.get("SSL_CERT_FILE")
    if not file:
        return None
    try:
        check_authorities(file)
    except CertificateFileError as error:
        return f"SSL_CERT_FILE names {file}, which {error}"
    return None


def check_certificate(file: str) -> str:
    """The file, if it begins with a certificate. Raises CertificateFileError."""
    if _CERTIFICATE_MARK not in _read(file):
        message = "holds no certificate in PEM form"
        raise CertificateFileError(message)
    return file


def check_key(certificate_file: str, key_file: str | None) -> None:
    """Raises CertificateFileError unless the certificate's private key can be read, from its own file if None."""
    if _KEY_MARK not in _read(key_file or certificate_file):
        message = (
            "holds no private key in PEM form" if key_file else "will not do: client_cert_file holds no private key"
        )
        raise CertificateFileError(message)
    _load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate_file, key_file)


def make_context(ca_file: str | None, certificate_file: str | None, key_file: str | None) -> ssl.SSLContext:
    """What TLS is spoken with: the system's authorities and those of `ca_file`, and a certificate to show, if any.

    Raises CertificateFileError.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(ALPN)
    if ca_file is not None:
        # What the operator names is trusted, whether it is a root or not: so it is by default since Python 3.13.
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
    return Path(os.path.expanduser(file))  # noqa: PTH111 - Path's own raises where there is no such user


def _load_authorities(context: ssl.SSLContext, file: str) -> None:
    text = _read(file)
    if _CERTIFICATE_MARK not in text and _TRUSTED_MARK not in text:
        message = "holds no certificate in PEM form"
        raise CertificateFileError(message)
    try:
        context.load_verify_locations(_find(file))
    except (ssl.SSLError, OSError, ValueError) as error:
        message = "holds a certificate that cannot be read"
        raise CertificateFileError(message) from error


def _load_certificate(context: ssl.SSLContext, file: str, key_file: str | None) -> None:
    def refuse() -> str:
        raise _PassphraseError  # OpenSSL would ask for it on the terminal

    key = _find(key_file) if key_file else None
    try:
        context.load_cert_chain(_find(file), key, refuse)
    except _PassphraseError as error:
        message = "holds a private key with a passphrase; store it without one"
        raise CertificateFileError(message) from error
    except (ssl.SSLError, OSError, ValueError) as error:
        belongs = getattr(error, "reason", "") == "KEY_VALUES_MISMATCH"
        message = "does not belong to client_cert_file" if belongs else "or its certificate is damaged"
        raise CertificateFileError(message) from error
