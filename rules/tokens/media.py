"""What an image costs, by its size and the model's family, and a low guess of what any other file costs.

Law: arithmetic only; never raises. Source of all numbers of images: OpenAI's and Anthropic's guides to vision. The
counts are exact for 42 of 44 recorded images whose size could be read. Of a file only the first and the last bytes are
read, and only the upstream knows what it makes of one: a guess must never be the reason why a request is refused, or
why everything else is cut. An upstream that finds the prompt too long says so.
"""

import math
from itertools import islice
from struct import unpack_from
from typing import NamedTuple

import msgspec

from trimtab.rules.text.late import compile_late

# All from the guides named above.
LOW_DETAIL_SIDE = 512
MAX_SIDE = 2048
SHORT_SIDE = 768
TILE_SIDE = 512
PATCH_SIDE = 32
MAX_PATCHES = 1536
PIXELS_PER_TOKEN = 750
MAX_AREA_TOKENS = 1600
MAX_SEGMENTS = 1000
"""Segments of a JPEG that are read before its frame. Chosen: real files have about ten."""

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


class Size(msgspec.Struct, frozen=True):
    """Width and height of an image, in pixels."""

    width: int
    height: int


UNSEEN_IMAGE = Size(1024, 512)
"""An image whose size is not in the request. A low guess, because only the upstream knows: no request is refused, and
nothing else is cut, for an image that may be small."""


class TileCost(msgspec.Struct, frozen=True):
    """A base and a price for each tile of 512 x 512, after the image is shrunk to 2048 and its short side to 768."""

    base_tokens: int
    tile_tokens: int

    def count(self, size: Size, *, low_detail: bool) -> int:
        if low_detail:
            return self.base_tokens
        width, height = size.width, size.height
        scale = min(1.0, MAX_SIDE / max(width, height))
        scale = min(scale, SHORT_SIDE / min(width, height))
        tiles = math.ceil(round(width * scale, 6) / TILE_SIDE) * math.ceil(round(height * scale, 6) / TILE_SIDE)
        return self.base_tokens + self.tile_tokens * tiles


class PatchCost(msgspec.Struct, frozen=True):
    """`factor` tokens for each patch of 32 x 32 pixels, at most 1536 patches, and 1 token for the image."""

    factor: float

    def count(self, size: Size, *, low_detail: bool) -> int:
        patches = _count_patches(size)
        if low_detail:
            patches = min(patches, (LOW_DETAIL_SIDE // PATCH_SIDE) ** 2)
        return math.ceil(patches * self.factor) + 1


class AreaCost(msgspec.Struct, frozen=True):
    """One token for 750 pixels, at most 1600."""

    def count(self, size: Size, *, low_detail: bool) -> int:
        del low_detail
        return min(math.ceil(size.width * size.height / PIXELS_PER_TOKEN), MAX_AREA_TOKENS)


ImageCost = TileCost | PatchCost | AreaCost


def _count_patches(size: Size) -> int:
    """Number of patches; a larger image is shrunk until MAX_PATCHES hold it."""
    across, down = size.width / PATCH_SIDE, size.height / PATCH_SIDE
    if math.ceil(across) * math.ceil(down) <= MAX_PATCHES:
        return math.ceil(across) * math.ceil(down)
    shrink = math.sqrt(MAX_PATCHES / (across * down))
    across, down = across * shrink, down * shrink
    fit = min(math.floor(across) / across, math.floor(down) / down) if min(across, down) >= 1 else 1.0
    return min(math.ceil(across * fit) * math.ceil(down * fit), MAX_PATCHES)


def read_size(head: bytes) -> Size | None:
    """The size of a PNG, JPEG, GIF or WebP image, read from its first bytes; None if they do not contain it."""
    size = None
    if head.startswith(_PNG) and len(head) >= 24:
        size = Size(int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big"))
    elif head.startswith((b"GIF87a", b"GIF89a")) and len(head) >= 10:
        size = Size(int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little"))
    elif head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        size = _read_webp(head)
    elif head.startswith(b"\xff\xd8"):
        size = _read_jpeg(head)
    return size if size and size.width > 0 and size.height > 0 else None


def _read_webp(head: bytes) -> Size | None:
    """Read one of the three kinds of first chunk. Source: RFC 9649."""
    if head[12:16] == b"VP8X" and len(head) >= 30:
        return Size(int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1)
    if head[12:16] == b"VP8L" and len(head) >= 25:
        bits = int.from_bytes(head[21:25], "little")
        return Size((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if head[12:16] == b"VP8 " and len(head) >= 30:
        width, height = unpack_from("<HH", head, 26)
        return Size(width & 0x3FFF, height & 0x3FFF)
    return None


def _read_jpeg(head: bytes) -> Size | None:
    """Skip segments up to the frame's header, which holds the size."""
    at = 2
    for _ in range(MAX_SEGMENTS):
        if at + 9 > len(head) or head[at] != 0xFF:
            return None
        marker = head[at + 1]
        if marker in _JPEG_FRAMES:
            return Size(int.from_bytes(head[at + 7 : at + 9], "big"), int.from_bytes(head[at + 5 : at + 7], "big"))
        at += 1 if marker == 0xFF else 2 + max(int.from_bytes(head[at + 2 : at + 4], "big"), 2)
    return None


PAGE_TOKENS = 1000
"""Tokens of a page of a PDF. Source: recorded requests to OpenAI. Gemini counts 258, Anthropic 1500 to 3000 for the
text and the page's image besides."""
AUDIO_TOKENS_PER_SECOND = 10
"""Source: OpenAI's. Gemini counts 32."""
VIDEO_TOKENS_PER_SECOND = 66
"""Low: Gemini's at a low resolution. It counts 258 at the default one."""
PACKED_BYTES_PER_SECOND = 16_000
"""Audio whose duration is not read. Chosen: 128 kbit/s, a usual rate of MP3; speech has lower ones."""
UNSEEN_FILE_TOKENS = 2000
"""Tokens of a file of which only the name is known, or whose content is not. A guess: a few pages."""
CHARS_PER_TOKEN = 24
"""Characters of base64 text. No guess is above that: recorded requests with PDF files had 26 to 80."""
TEXT_CHARS_PER_TOKEN = 6
"""Characters of base64 text that encodes text: four and a half bytes a token."""
MAX_GUESS_TOKENS = 4096
"""No file is guessed to cost more. Chosen: a large one leaves most of a window that can hold it to everything else."""
FRAME_TOKENS = 3  # chosen: as the frame of a message

_PAGES = compile_late(rb"/Type[ \t\r\n]{0,8}/Pages(?![A-Za-z])")
_PAGE = compile_late(rb"/Type[ \t\r\n]{0,8}/Page(?![A-Za-z])")
_COUNT = compile_late(rb"/Count[ \t\r\n]{1,8}(\d{1,6})(?!\d)")
_LINEAR = compile_late(rb"/Linearized[^>]{0,300}?/N[ \t\r\n]{1,8}(\d{1,6})(?!\d)")
_LINEAR_BYTES = 1024
"""Bytes in which the number of pages of a linearized PDF stands. Source: ISO 32000-1, annex F."""
_LISTS = 64
"""Lists of pages that are read. Chosen: a tree of pages has its largest count at the top, first or last in the file."""
_LIST_BYTES = 16_384
"""Bytes around the type of a list of pages that are searched for its count. Chosen: room for 2000 references."""
_AUDIO = (b"ID3", b"OggS", b"fLaC", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xf1", b"\xff\xf9", b"#!AMR")
_SOUND_BRANDS = (b"M4A ", b"M4B ")


class Piece(NamedTuple):
    """What is read of a file: its first bytes, its last bytes, and the characters of its whole base64 text."""

    head: bytes
    tail: bytes
    chars: int

    @property
    def size(self) -> int:
        return self.chars * 3 // 4


def guess_file(piece: Piece | None, hint: str = "") -> int:
    """A low guess of the tokens of a file. `piece` is None if the file is not in the request.

    `hint`: what the client says of its type, such as `application/pdf` or `wav`. The file's own bytes come first.
    """
    if piece is None:
        return FRAME_TOKENS + UNSEEN_FILE_TOKENS
    tokens = _guess(piece, hint.lower())
    return FRAME_TOKENS + min(tokens, MAX_GUESS_TOKENS)


def _guess(piece: Piece, hint: str) -> int:
    most = piece.chars // CHARS_PER_TOKEN
    head = piece.head.lstrip()[:1024]
    if b"%PDF-" in head:
        pages = read_pages(piece)
        return min(most, UNSEEN_FILE_TOKENS if pages is None else pages * PAGE_TOKENS)
    seconds = read_seconds(piece)
    if seconds is not None:
        is_sound = head.startswith(b"RIFF") or head[8:12] in _SOUND_BRANDS or "audio" in hint
        return int(seconds * (AUDIO_TOKENS_PER_SECOND if is_sound else VIDEO_TOKENS_PER_SECOND))
    if head.startswith(_AUDIO) or "audio" in hint:
        return piece.size * AUDIO_TOKENS_PER_SECOND // PACKED_BYTES_PER_SECOND
    if hint.startswith(("text/", "application/json")):
        return piece.chars // TEXT_CHARS_PER_TOKEN
    return min(most, UNSEEN_FILE_TOKENS)


def read_pages(piece: Piece) -> int | None:
    """The pages of a PDF, as far as its first and last bytes show them; None if they show none.

    A PDF may keep its objects compressed, and then shows none.
    """
    found = [int(match[1]) for match in _LINEAR.finditer(piece.head[:_LINEAR_BYTES])]
    for part in (piece.head, piece.tail):
        for match in islice(_PAGES.finditer(part), _LISTS):
            start = max(part.rfind(b"obj", max(match.start() - _LIST_BYTES, 0), match.start()), 0)
            stop = part.find(b"endobj", match.end(), match.end() + _LIST_BYTES)
            around = part[start : stop if stop >= 0 else match.end() + _LIST_BYTES]
            found += [int(count[1]) for count in islice(_COUNT.finditer(around), 1)]
    listed = sum(1 for part in (piece.head, piece.tail) for _ in _PAGE.finditer(part))
    pages = max((*found, listed), default=0)
    return pages or None


def read_seconds(piece: Piece) -> float | None:
    """The duration of a wave or of an MP4 or QuickTime file; None if its first and last bytes do not show it."""
    head = piece.head
    if head.startswith(b"RIFF") and head[8:12] == b"WAVE":
        return _read_wave(piece)
    if head[4:8] not in (b"ftyp", b"moov", b"mdat", b"free", b"wide", b"skip"):
        return None
    for part in (head, piece.tail):
        at = part.find(b"mvhd")
        if at >= 0 and (seconds := _read_movie(part[at + 4 : at + 36])) is not None:
            return seconds
    return None


def _read_wave(piece: Piece) -> float | None:
    at = piece.head.find(b"fmt ", 12, 4096)
    rate = int.from_bytes(piece.head[at + 16 : at + 20], "little") if at >= 0 else 0
    return piece.size / rate if rate > 0 else None


def _read_movie(header: bytes) -> float | None:
    """The duration that a movie's header names. Source: ISO/IEC 14496-12, `mvhd`."""
    if len(header) < 32:
        return None
    if header[0] == 1:
        scale, units = int.from_bytes(header[20:24], "big"), int.from_bytes(header[24:32], "big")
    else:
        scale, units = int.from_bytes(header[12:16], "big"), int.from_bytes(header[16:20], "big")
    return units / scale if scale > 0 and units > 0 else None
