"""Compressed bodies are read within bounds, whatever they contain."""

import gzip
import sys
import zlib

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.http import content_coding
from trimtab.proxy.http.content_coding import (
    MAX_MEMBERS,
    STEP_BYTES,
    Decoded,
    Reader,
    decode_body,
    read_codings,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = b'{"model":"m","messages":[]}' * 50
COMPRESS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
    "br": brotli.compress,
}


@pytest.mark.parametrize(
    ("values", "codings"),
    [
        ((), ()),
        (("identity",), ()),
        (("",), ()),
        (("GZip",), ("gzip",)),
        (("gzip , zstd",), ("gzip", "zstd")),
        (("gzip", "identity", "br"), ("gzip", "br")),
    ],
)
def test_codings_are_read_in_their_order(values, codings):
    """They may be in one header or in several, in any case of letters. `identity` does not count."""
    assert read_codings(values) == codings


@pytest.mark.parametrize("coding", COMPRESS)
def test_what_was_compressed_is_read(coding):
    compress = COMPRESS[coding]
    assert decode_body(compress(TEXT), [coding], 10**6) == Decoded(TEXT)
    if coding not in {"deflate", "br"}:
        assert decode_body(compress(TEXT) * 3, [coding], 10**6) == Decoded(TEXT * 3)


def test_codings_upon_each_other_are_taken_off_in_reverse():
    """Two of them; more are not read, and neither is what is not known."""
    twice = zstd.compress(gzip.compress(TEXT))
    assert decode_body(twice, ["gzip", "zstd"], 10**6) == Decoded(TEXT)
    assert decode_body(gzip.compress(twice), ["gzip", "zstd", "gzip"], 10**6) == Decoded(b"", damaged=True)

    for coding in ("br", "compress", "nonsense", "gzip;q=1"):
        assert decode_body(TEXT, [coding], 10**6) == Decoded(b"", damaged=True)


@pytest.mark.parametrize("coding", COMPRESS)
def test_nothing_comes_out_beyond_the_bound(coding):
    """Exactly as much as the bound is read; of a byte more, only the beginning."""
    body = COMPRESS[coding](TEXT)
    assert decode_body(body, [coding], len(TEXT)) == Decoded(TEXT)
    assert decode_body(body, [coding], len(TEXT) - 1) == Decoded(TEXT[:-1], too_large=True)


def test_bombs_do_not_go_off():
    """A bomb within a bomb, and a million empty members, end at their bounds."""
    bomb = gzip.compress(gzip.compress(bytes(10**8)))
    assert decode_body(bomb, ["gzip", "gzip"], 10**6) == Decoded(bytes(10**6), too_large=True)
    members = gzip.compress(b"") * 10**5
    assert decode_body(members, ["gzip"], 10**6) == Decoded(b"", damaged=True)
    assert decode_body(gzip.compress(b"a") * MAX_MEMBERS, ["gzip"], 10**6) == Decoded(b"a" * MAX_MEMBERS)


def test_a_window_of_more_than_http_allows_is_not_read():
    options = {zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.content_size_flag: 0}
    compressor = zstd.ZstdCompressor(options=options)
    frame = compressor.compress(TEXT, compressor.FLUSH_BLOCK) + compressor.flush()
    assert decode_body(frame, ["zstd"], 10**6) == Decoded(b"", damaged=True)


@pytest.mark.parametrize("coding", COMPRESS)
@given(data=st.data())
def test_damage_is_noticed(coding, data):
    """Cut short anywhere, or with bytes after its end: damaged, and the beginning is returned."""
    body = COMPRESS[coding](TEXT)
    cut = data.draw(st.integers(0, len(body) - 1))
    decoded = decode_body(body[:cut], [coding], 10**6)
    assert (decoded.damaged, TEXT.startswith(decoded.body)) == (True, True)
    with_rest = decode_body(body + b"?", [coding], 10**6)
    assert (with_rest.damaged, TEXT.startswith(with_rest.body)) == (True, True)
    assert coding == "br" or with_rest.body == TEXT


def _deflate_bare(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def _read(codings, wire):
    return b"".join(Reader(codings).read_in_steps(wire))


LONG = b"".join(b'{"n": %d, "text": "%b"}' % (n * n, b"quay " * (n % 7)) for n in range(4_000))
FORMS = [*((coding, compress) for coding, compress in COMPRESS.items()), ("deflate", _deflate_bare)]


@pytest.mark.parametrize(("coding", "compress"), FORMS)
@pytest.mark.parametrize("step", [7, 1000, 10**9])
def test_an_answer_is_read_piece_by_piece(coding, compress, step):
    """However it is cut. No step gives much more than its bound, and nothing is lost."""
    text = LONG[:3000] if step < 100 else LONG
    wire, reader, read = compress(text), Reader([coding]), []
    for start in range(0, len(wire), step):
        read += reader.read_in_steps(wire[start : start + step])
    assert b"".join(read) == text == _read([coding], wire)
    assert max(map(len, read)) <= 2 * STEP_BYTES


@pytest.mark.parametrize(("coding", "compress"), FORMS)
def test_what_is_read_along_is_bounded(coding, compress, monkeypatch):
    """A bomb stops; a damaged answer gives what came before the damage; one that is cut off, too."""
    monkeypatch.setattr(content_coding, "MAX_READ_BYTES", 3_000_000)
    assert len(_read([coding], compress(bytes(5_000_000)))) == 3_000_000
    wire = compress(LONG)
    for odd in (wire[: len(wire) // 2], wire[: len(wire) // 2] + bytes(500) + wire[len(wire) // 2 :], wire + b"odd"):
        assert LONG.startswith(_read([coding], odd)[: len(LONG) // 3])
    assert LONG.startswith(_read([coding], wire[: len(wire) // 2]))


def test_codings_upon_each_other_are_read_along():
    twice = brotli.compress(gzip.compress(LONG))
    assert _read(["gzip", "br"], twice) == LONG
    assert _read(["gzip", "compress"], twice) == _read(["br"] * 3, twice) == b""


def test_input_that_cannot_be_decoded_in_time_is_dropped():
    """A reader that is never asked for more keeps a bounded part of what comes."""
    reader, wire = Reader(["gzip"]), gzip.compress(bytes(30_000_000), 1)
    for start in range(0, len(wire), 1000):
        reader.feed(wire[start : start + 1000])
    for _ in range(40):
        reader.feed(LONG)
    assert not reader.is_behind


@given(st.binary(max_size=300), st.sampled_from([*COMPRESS]), st.integers(1, 50))
def test_any_bytes_are_read_along(wire, coding, step):
    """Nothing is raised. Read at once, they are decoded, or reported as damaged."""
    assert len(decode_body(wire, [coding], 1000).body) <= 1000
    reader = Reader([coding])
    for start in range(0, len(wire), step):
        assert len(reader.feed(wire[start : start + step])) <= 2 * STEP_BYTES
