"""Guesses what a file costs that is in a request: a PDF, audio, a video, or any other.

Law: arithmetic on the first and the last bytes only; never raises. Only the upstream knows what it makes of a file. So
a guess is low: it must never be the reason why a request is refused, or why everything else is cut. An upstream that
finds the prompt too long says so.
"""

import re
from itertools import islice
from typing import NamedTuple

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

_PAGES = re.compile(rb"/Type[ \t\r\n]{0,8}/Pages(?![A-Za-z])")
_PAGE = re.compile(rb"/Type[ \t\r\n]{0,8}/Page(?![A-Za-z])")
_COUNT = re.compile(rb"/Count[ \t\r\n]{1,8}(\d{1,6})(?!\d)")
_LINEAR = re.compile(rb"/Linearized[^>]{0,300}?/N[ \t\r\n]{1,8}(\d{1,6})(?!\d)")
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
        """Bytes of the whole file."""
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
