"""Replaces lone surrogates in JSON, which decoders refuse. Clients that cut texts by UTF-16 units send them.

Law: a replacement has the length of what it replaces, so that every offset stays valid.
"""

import re

from proxy.wire.json.strides import holds

_REPLACEMENT = rb"\ufffd"
_OTHERS = re.compile(
    rb"(?:[^\\]{1,1024}+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|\\(?!u[dD][89a-fA-F][0-9a-fA-F]{2}).){1,4096}+",
    re.DOTALL,
)
"""Everything except a lone surrogate: other bytes, surrogate pairs, other escapes. One match is bounded, so that it
does not hold the interpreter for long."""
_CANDIDATES = (rb"\ud", rb"\uD")


def replace_lone_surrogates(json: bytes) -> bytes:
    r"""The same JSON with `\ufffd` for the escape of each lone surrogate; both have six bytes."""
    if not any(holds(json, candidate) for candidate in _CANDIDATES):
        return json
    mended = bytearray(json)
    at = 0
    while at < len(json):
        run = _OTHERS.match(json, at)
        if run is not None:
            at = run.end()
        elif at + len(_REPLACEMENT) <= len(json):
            mended[at : at + len(_REPLACEMENT)] = _REPLACEMENT
            at += len(_REPLACEMENT)
        else:
            break  # a backslash that ends the text
    return bytes(mended)
