"""Packs a tiktoken rank file into the form that the wheel contains.

Usage, in the folder of the packed files (the wheel's are in proxy/compaction/tokenizers/vocabulary):
python pack_vocabulary.py o200k_base.tiktoken o200k_base.xz

The packed form is xz-compressed. It contains one byte per token with the token's length, in rank order, then the
tokens.
"""

import base64
import lzma
import pathlib
import sys

FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "pb": 0}]


def pack(ranks: bytes) -> bytes:
    """Return the packed form of a rank file. Raises ValueError if the ranks are not 0, 1, 2 ... in order."""
    tokens: list[bytes] = []
    for number, line in enumerate(ranks.splitlines()):
        token, rank = line.split()
        if int(rank) != number:
            message = f"line {number + 1}: rank {int(rank)}, expected {number}"
            raise ValueError(message)
        tokens.append(base64.b64decode(token))
    return lzma.compress(bytes(map(len, tokens)) + b"".join(tokens), filters=FILTERS)


def main() -> None:
    """Read the rank file and write the packed file."""
    source, target = map(pathlib.Path, sys.argv[1:3])
    packed = pack(source.read_bytes())
    target.write_bytes(packed)
    sys.stdout.write(f"{target}: {len(packed)} bytes\n")


if __name__ == "__main__":
    main()
