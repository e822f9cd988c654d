"""Guesses about files: what is read of their first and last bytes, and that no guess is high."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.tokens.media import (
    CHARS_PER_TOKEN,
    FRAME_TOKENS,
    MAX_GUESS_TOKENS,
    PAGE_TOKENS,
    UNSEEN_FILE_TOKENS,
    Piece,
    guess_file,
    read_pages,
    read_seconds,
)

MEGABYTES = 4_000_000


def _pdf(pages: int, *, kids: bool = False) -> bytes:
    listed = b" /Kids [" + b" ".join(b"%d 0 R" % (3 + n) for n in range(pages)) + b"]" if kids else b""
    return b"%%PDF-1.4\n1 0 obj\n<< /Type /Pages%b /Count %d >>\nendobj\n" % (listed, pages)


def _mvhd(scale: int, units: int, version: int = 0) -> bytes:
    if version:
        return b"mvhd" + struct.pack(">BxxxQQIQ", 1, 0, 0, scale, units) + bytes(80)
    return b"mvhd" + struct.pack(">BxxxIIII", 0, 0, 0, scale, units) + bytes(80)


WAVE = b"RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00" + struct.pack("<HHIIHH", 1, 1, 24_000, 48_000, 2, 16)
MP4 = b"\x00\x00\x00\x20ftypisom" + bytes(20)


def _piece(head: bytes, tail: bytes = b"", chars: int = MEGABYTES) -> Piece:
    return Piece(head, tail, chars)


@pytest.mark.parametrize(
    ("head", "tail", "pages"),
    [
        (_pdf(7), b"", 7),
        (_pdf(600, kids=True), b"", 600),
        (b"%PDF-1.4", _pdf(30), 30),
        (b"%PDF-1.4\n<< /Count 12 /Type/Pages >>", b"", 12),
        (b"%PDF-1.4\n" + 5 * b"1 0 obj << /Type /Page /Parent 2 0 R >> endobj\n", b"", 5),
        (b"%PDF-1.4\n<< /Linearized 1 /L 5000 /N 9 >>", b"", 9),
        (b"%PDF-1.4\n1 0 obj << /Type /Outlines /Count 400 >> endobj", b"", None),
        (b"%PDF-1.7\n5 0 obj << /Type /ObjStm /N 40 >> stream", b"startxref", None),
    ],
)
def test_the_pages_of_a_pdf_are_read(head: bytes, tail: bytes, pages: int | None) -> None:
    """Their list may stand first or last. A PDF that keeps its objects compressed shows none; outlines are no pages."""
    assert read_pages(_piece(head, tail)) == pages


@pytest.mark.parametrize(
    ("head", "tail", "seconds"),
    [
        (WAVE, b"", MEGABYTES * 3 // 4 / 48_000),
        (MP4 + _mvhd(600, 36_000), b"", 60.0),
        (MP4, b"moov" + _mvhd(1000, 90_000, version=1), 90.0),
        (MP4, b"", None),
        (MP4 + _mvhd(0, 5), b"", None),
        (MP4 + b"mvhd\x00", b"", None),
        (b"\x1aE\xdf\xa3webm", b"", None),
        (b"RIFF....WAVE", b"", None),
    ],
)
def test_durations_are_read(head: bytes, tail: bytes, seconds: float | None) -> None:
    """Of waves and of movies, whose header may come first or last."""
    assert read_seconds(_piece(head, tail)) == seconds


def test_a_file_costs_by_what_is_in_it() -> None:
    """Pages and seconds count; a large scan of one page costs one page. A hint counts if the bytes say nothing."""
    assert guess_file(_piece(_pdf(1))) == FRAME_TOKENS + PAGE_TOKENS
    assert guess_file(_piece(MP4 + _mvhd(1, 10))) == FRAME_TOKENS + 660
    assert guess_file(_piece(b"\x00\x00\x00\x20ftypM4A " + bytes(20) + _mvhd(1, 10))) == FRAME_TOKENS + 100
    assert guess_file(_piece(b"ID3\x04", chars=1_600_000)) == FRAME_TOKENS + 750
    assert guess_file(_piece(b"\x00", chars=1_600_000), "audio/webm") == FRAME_TOKENS + 750
    assert guess_file(_piece(b"a,b", chars=6000), "text/csv;base64,") == FRAME_TOKENS + 1000
    assert guess_file(_piece(b"PK\x03\x04")) == guess_file(None) == FRAME_TOKENS + UNSEEN_FILE_TOKENS


@given(
    head=st.binary(max_size=200)
    | st.sampled_from([_pdf(999_999), WAVE[:-8] + b"\x01\x00\x00\x00", MP4 + _mvhd(1, 2**32 - 1)]),
    tail=st.binary(max_size=200) | st.just(_mvhd(1, 2**64 - 1, version=1)),
    chars=st.integers(0, 10**9),
    hint=st.sampled_from(["", "audio", "application/pdf", "text/plain", "video/mp4"]),
)
def test_no_guess_is_high(head: bytes, tail: bytes, chars: int, hint: str) -> None:
    """Whatever a file claims, and however large it is."""
    assert FRAME_TOKENS <= guess_file(Piece(head, tail, chars), hint) <= FRAME_TOKENS + MAX_GUESS_TOKENS
    assert guess_file(Piece(_pdf(50), b"", chars)) <= FRAME_TOKENS + chars // CHARS_PER_TOKEN


def test_hostile_lists_of_pages_take_bounded_work() -> None:
    """Only a few of very many are read."""
    hostile = b"%PDF-1.4" + b"/Type/Pages/Linearized" * 6000
    assert read_pages(_piece(hostile, hostile)) is None
