"""Packs a tiktoken rank file into the form that the wheel contains.

Usage, in the folder of the packed files (the wheel's are in proxy/compaction/vocabulary):
python pack_vocabulary.py o200k_base.tiktoken o200k_base.zst

The packed form is a MessagePack array of the tokens in rank order, compressed by zstd with a checksum: it is unpacked
in a twentieth of a second, and one of xz with the lengths before the tokens took three times as long.
"""

import base64
import pathlib
import sys

import msgspec

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

OPTIONS = {zstd.CompressionParameter.compression_level: 22, zstd.CompressionParameter.checksum_flag: 1}


def pack(ranks: bytes) -> bytes:
    """Return the packed form of a rank file. Raises ValueError if the ranks are not 0, 1, 2 ... in order."""
    tokens: list[bytes] = []
    for number, line in enumerate(ranks.splitlines()):
        token, rank = line.split()
        if int(rank) != number:
            message = f"line {number + 1}: rank {int(rank)}, expected {number}"
            raise ValueError(message)
        tokens.append(base64.b64decode(token))
    return zstd.compress(msgspec.msgpack.encode(tokens), options=OPTIONS)


def main() -> None:
    """Read the rank file and write the packed file."""
    source, target = map(pathlib.Path, sys.argv[1:3])
    packed = pack(source.read_bytes())
    target.write_bytes(packed)
    sys.stdout.write(f"{target}: {len(packed)} bytes\n")


if __name__ == "__main__":
    main()
