"""JSON with a lone surrogate in it, which decoders refuse and clients that cut texts by UTF-16 units send.

Law: what is put in its place has the same length, so that every offset stays true.
"""

import re

_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)

_CANDIDATE = re.compile(rb"\\u[dD][89a-fA-F]")


def replace_lone_surrogates(json: bytes) -> bytes:
    r"""The same JSON with every lone surrogate's escape, six bytes, made `\ufffd`, six bytes."""
    if _CANDIDATE.search(json) is None:
        return json
    return _ESCAPE.sub(lambda escape: rb"\ufffd" if escape["lone"] else escape[0], json)
