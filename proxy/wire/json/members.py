"""Splits a JSON object into its members, and an array into its items, without decoding them.

Law: each value keeps its bytes, unless the JSON has to be repaired.
"""

import msgspec

from proxy.wire.json.repair import mend

decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""The members of a JSON object; of a repeated name, the last one. Raises one of DECODE_ERRORS."""
decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
"""The items of a JSON array. Raises one of DECODE_ERRORS."""


def read_members(raw: bytes) -> dict[str, msgspec.Raw]:
    """The members of an object, repaired if need be: a lone surrogate becomes U+FFFD. Raises one of DECODE_ERRORS."""
    try:
        if b"\xed" not in raw:
            return decode_members(raw)
    except msgspec.DecodeError:
        pass
    return decode_members(mend(raw))
