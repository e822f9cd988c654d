"""Guesses about files: what is read of their first and last bytes, and that no guess is high."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.tokens.media import (
    CHARS_PER_TOKEN,
    FRAME_TOKENS,
    MAX_GUESS_TOKENS,
    MAX_SEGMENTS,
    PAGE_TOKENS,
    UNSEEN_FILE_TOKENS,
    AreaCost,
    ImageCost,
    PatchCost,
    Piece,
    Size,
    TileCost,
    guess_file,
    read_pages,
    read_seconds,
    read_size,
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
        (b"RIFF....WAVE", b"", None),
    ],
)
def test_durations_are_read(head: bytes, tail: bytes, seconds: float | None) -> None:
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


# The cost of images, and their size as read from their first bytes.

GPT_4O = TileCost(85, 170)
GPT_4O_MINI = TileCost(2833, 5667)
GPT_4_1_MINI = PatchCost(1.62)
COSTS: list[ImageCost] = [GPT_4O, GPT_4O_MINI, TileCost(70, 140), GPT_4_1_MINI, PatchCost(2.46), AreaCost()]
SIDES = st.integers(1, 3000) | st.integers(1, 2**32 - 1)


@pytest.mark.parametrize(
    ("cost", "size", "low", "tokens"),
    [
        (GPT_4O, Size(1024, 1024), False, 765),
        (GPT_4O, Size(2048, 4096), False, 1105),
        (GPT_4O, Size(4096, 8192), True, 85),
        (GPT_4O_MINI, Size(512, 512), False, 8500),
        (GPT_4_1_MINI, Size(1024, 1024), False, math.ceil(1024 * 1.62) + 1),
        (GPT_4_1_MINI, Size(1800, 2400), False, math.ceil(1452 * 1.62) + 1),
        (GPT_4_1_MINI, Size(1800, 2400), True, math.ceil(256 * 1.62) + 1),
        (AreaCost(), Size(200, 200), False, 54),
        (AreaCost(), Size(1000, 1000), False, 1334),
        (AreaCost(), Size(8000, 8000), False, 1600),
    ],
)
def test_images_cost_what_their_makers_publish(cost: ImageCost, size: Size, low: bool, tokens: int) -> None:  # noqa: FBT001
    """These are the examples in OpenAI's and Anthropic's guides to vision."""
    assert cost.count(size, low_detail=low) == tokens


@pytest.mark.parametrize("cost", COSTS)
@given(width=SIDES, height=SIDES, low=st.booleans())
def test_no_image_costs_more_than_the_largest(cost: ImageCost, width: int, height: int, low: bool) -> None:  # noqa: FBT001
    """However long or thin an image is. No image is free, and low detail never costs more."""
    largest = max(cost.count(size, low_detail=low) for size in (Size(2048, 768), Size(1536, 1024), Size(8000, 8000)))
    assert 0 < cost.count(Size(width, height), low_detail=low) <= largest
    assert cost.count(Size(width, height), low_detail=True) <= cost.count(Size(width, height), low_detail=False)


def _segment(marker: int, body: bytes) -> bytes:
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(body) + 2) + body


def _frame(marker: int) -> bytes:
    return _segment(marker, b"\x08" + struct.pack(">HH", 480, 640) + b"\x03" + b"\x01\x22\x00" * 3)


def _riff(kind: bytes, body: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(body) + 12) + b"WEBP" + kind + struct.pack("<I", len(body)) + body


JFIF = _segment(0xE0, b"JFIF\x00" + bytes(9))
# A thumbnail within the metadata has a frame of its own, which is not the image's.
EXIF = _segment(
    0xE1, b"Exif\x00\x00" + b"\xff\xd8" + _segment(0xC0, b"\x08" + struct.pack(">HH", 9, 9)) + bytes(40_000)
)
TABLES = _segment(0xDB, bytes(65)) + _segment(0xC4, bytes(29))
PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">IIBBBBB", 640, 480, 8, 2, 0, 0, 0)
GIF = b"GIF89a" + struct.pack("<HH", 640, 480) + bytes(3)
LOSSY = _riff(b"VP8 ", bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", 640 | 0x4000, 480 | 0x8000))
LOSSLESS = _riff(b"VP8L", b"\x2f" + struct.pack("<I", 639 | 479 << 14 | 1 << 28))
EXTENDED = _riff(b"VP8X", bytes(4) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little"))
JPEG = b"\xff\xd8" + JFIF + TABLES + _frame(0xC0)
IMAGES = [
    pytest.param(PNG, 24, id="png"),
    pytest.param(GIF, 10, id="gif 89a"),
    pytest.param(JPEG, -10, id="jpeg"),
    pytest.param(b"\xff\xd8" + EXIF + JFIF + _frame(0xC0), -10, id="jpeg behind exif"),
    pytest.param(b"\xff\xd8\xff\xff\xff" + JFIF + b"\xff" + _frame(0xCF), -10, id="jpeg with fill bytes"),
    pytest.param(LOSSY, 30, id="webp lossy"),
    pytest.param(LOSSLESS, 25, id="webp lossless"),
    pytest.param(EXTENDED, 30, id="webp extended"),
]


@pytest.mark.parametrize(("image", "needed"), IMAGES)
def test_the_size_stands_in_the_first_bytes(image: bytes, needed: int) -> None:
    """It is read from as many bytes as it takes, whatever follows. From fewer bytes it is not guessed."""
    assert read_size(image[:needed]) == read_size(image) == read_size(image + b"\xff" * 100) == Size(640, 480)
    assert all(read_size(image[:length]) is None for length in range(len(image[:needed]))[-300:])


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"BM" + bytes(60),
        b"\x89PNG\r\n\x1a\n" + bytes(16),
        _riff(b"VP8?", bytes(40)),
        b"RIFF" + bytes(4) + b"WAVE" + bytes(40),
        b"\xff\xd8" + b"\xff" * 60,
        b"\xff\xd8" + b"\xff\xe0\x00\x00" * 20,
        b"\xff\xd8" + JFIF + b"\x00" + _frame(0xC0),
        b"\xff\xd8" + _segment(0xC0, b"\x08" + bytes(4) + bytes(9)),
    ],
)
def test_what_is_no_image_has_no_size(head: bytes) -> None:
    """Examples are other formats, sides of zero, and segments that lead nowhere."""
    assert read_size(head) is None


@given(
    st.sampled_from([b"", PNG, GIF, LOSSY, LOSSLESS, EXTENDED, b"\xff\xd8" + JFIF]),
    st.integers(0, 40),
    st.binary(max_size=60),
)
def test_any_bytes_have_a_size_or_none(begun: bytes, length: int, junk: bytes) -> None:
    size = read_size(begun[:length] + junk)
    assert size is None or min(size.width, size.height) >= 1


@pytest.mark.parametrize("segment", [b"\xff", b"\xff\xe0\x00\x02"])
def test_a_jpeg_of_nothing_but_segments_is_given_up(segment: bytes) -> None:
    """No image has thousands of fill bytes or empty segments. Up to the bound, they are skipped."""
    most = b"\xff\xd8" + segment * (MAX_SEGMENTS - 1) + _frame(0xC0)
    assert read_size(most) == Size(640, 480)
    assert read_size(b"\xff\xd8" + segment * 100 * MAX_SEGMENTS + _frame(0xC0)) is None
