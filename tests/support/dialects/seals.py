"""Signatures and encrypted contents as a provider makes them: opaque to a client, and checked if they come back.

A seal is base64. Its last 32 bytes are the SHA-256 hash of the bytes before, so any change shows.
"""

import base64
import binascii
import hashlib

HASH_BYTES = 32
SEAL_BYTES = 96


def seal(text: str, size_bytes: int = SEAL_BYTES) -> str:
    """An encrypted content of `size_bytes` that stands for a text. The same text gives the same seal."""
    filler = hashlib.shake_256(text.encode()).digest(size_bytes - HASH_BYTES)
    return base64.b64encode(filler + hashlib.sha256(filler).digest()).decode()


def is_seal(content: object) -> bool:
    """Whether a content is a seal, unchanged."""
    if not isinstance(content, str):
        return False
    try:
        whole = base64.b64decode(content, validate=True)
    except (ValueError, binascii.Error):
        return False
    return hashlib.sha256(whole[:-HASH_BYTES]).digest() == whole[-HASH_BYTES:]
