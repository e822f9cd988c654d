"""Summaries at rest: found and decrypted only with the secret of the client that paid for them.

Law: a summary's id and its encryption key are derived separately from the client's secret. Neither reveals the other,
the secret or the text. Data that cannot be decrypted is None, never an exception.
"""

import hmac
import os
import tempfile
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trimtab.rules.summary.request import PROMPT_VERSION, Summary

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# Source: AES-256-GCM (NIST SP 800-38D).
KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
VERSION = b"\x01"  # First byte of the encrypted form: version, nonce, ciphertext, tag


class KeyFileError(Exception):
    """The key file cannot be read or does not contain a key; the message says what to do."""


class _Content(msgspec.Struct, array_like=True, frozen=True):
    """The plaintext of an encrypted summary. The text is bytes, because it may contain lone surrogates."""

    text: bytes
    by_model: bool
    note: bytes = b""


@lru_cache(maxsize=256)  # a request names its summary three times
def derive_id(secret: bytes, prefix_hash: str, model: str, instructions: str | None = None) -> str:
    """A summary's id: HKDF-SHA256 of the secret, bound to prefix, prompt (with the operator's own) and model."""
    # The hash of the instructions follows the version. Neither contains "+", so the border between them is clear.
    prompt = f"{PROMPT_VERSION}+{sha256(_encode(instructions)).hexdigest()}" if instructions else PROMPT_VERSION
    info = _encode(f"{prefix_hash}\0{prompt}\0{model}")
    return _derive(secret, salt=b"trimtab summary id", info=info).hex()


def derive_record_id(secret: bytes, kind: str, prefix_hash: str, model: str) -> str:
    """Derive the id of a record about a prefix that is no summary, in the same way; `kind` keeps records apart."""
    info = _encode(f"{kind}\0{prefix_hash}\0{model}")
    return _derive(secret, salt=b"trimtab record id", info=info).hex()


def seal(secret: bytes, summary_id: str, summary: Summary) -> bytes:
    """Encrypt a summary by AES-256-GCM. It can be decrypted only with the secret and under this id."""
    nonce = os.urandom(NONCE_BYTES)
    content = msgspec.msgpack.encode(_Content(_encode(summary.text), summary.by_model, summary.note))
    return VERSION + nonce + _cipher(secret, summary_id).encrypt(nonce, content, _encode(summary_id))


def unseal(secret: bytes, summary_id: str, sealed: bytes) -> Summary | None:
    """Decrypt a summary; None if it belongs to another secret or id, or is damaged."""
    if sealed[:1] != VERSION or len(sealed) < len(VERSION) + NONCE_BYTES + TAG_BYTES:
        return None
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as for `_cipher`

    nonce, ciphertext = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
    try:
        content = _cipher(secret, summary_id).decrypt(nonce, ciphertext, _encode(summary_id))
        decoded = msgspec.msgpack.decode(content, type=_Content)
        return Summary(decoded.text.decode("utf-8", "surrogatepass"), decoded.by_model, note=decoded.note)
    except (InvalidTag, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def seal_text(secret: bytes, record_id: str, text: str) -> bytes:
    return seal(secret, record_id, Summary(text, by_model=False))


def unseal_text(secret: bytes, record_id: str, sealed: bytes | None) -> str | None:
    """Decrypt a text; None if there is none, if it belongs to another secret or id, or is damaged."""
    found = None if sealed is None else unseal(secret, record_id, sealed)
    return None if found is None else found.text


def load_key(path: Path) -> bytes:
    """The key for clients without a credential: 32 random bytes in a file of mode 0600, made if absent.

    Processes that start together get the same key. Raises KeyFileError if the file cannot be made or read, or has other
    content: with a key of its own, this process would silently share nothing with the others.
    """
    try:
        if not path.exists():
            _make_key(path)
        key = path.read_bytes()
    except OSError as error:
        message = f"{path}: {error.strerror}; the key of clients without a credential must be kept there"
        raise KeyFileError(message) from error
    if len(key) != KEY_BYTES:
        raise KeyFileError(f"{path}: has {len(key)} bytes instead of {KEY_BYTES}; remove it, and a new key is made")
    return key


def _make_key(path: Path) -> None:
    """Write a key to a temporary file and link it into place. If another process was first, its key stays."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-") as draft:  # of mode 0600
        draft.write(os.urandom(KEY_BYTES))
        draft.flush()
        os.fsync(draft.fileno())
        with suppress(FileExistsError):
            os.link(draft.name, path)


def _cipher(secret: bytes, summary_id: str) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - slow, and not for the start

    return AESGCM(_derive(secret, salt=b"trimtab summary key", info=_encode(summary_id)))


def _derive(secret: bytes, *, salt: bytes, info: bytes) -> bytes:
    """HKDF-SHA256 for 32 bytes: two hashes. Source: RFC 5869. The cryptography package is five times slower."""
    return hmac.digest(hmac.digest(salt, secret, "sha256"), info + b"\x01", "sha256")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
