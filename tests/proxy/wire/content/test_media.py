"""What the parts of a message that are not text cost."""

import struct
from base64 import b64encode
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import dump, odd_objects

from proxy.compaction.tokenizers.exact import count_by_heuristic
from proxy.wire.content.media import JPEG_HEAD_CHARS, count_part, read_image_size
from rules.tokens.families import find_family
from rules.tokens.images import Size
from rules.tokens.messages import UNSEEN_FILE_TOKENS, count_audio, count_file

GPT, MINI = find_family("gpt-4o").costs, find_family("gpt-4o-mini").costs
DEEP = b"[" * 900 + b"]" * 900
DEEPER = b"[" * 100_000 + b"]" * 100_000

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 512, 512) + bytes(40_000)
BASE64 = b64encode(PNG).decode()
URL = f"data:image/png;base64,{BASE64}"
JPEG = (
    b"\xff\xd8\xff\xe1"
    + struct.pack(">H", 60_002)
    + bytes(60_000)
    + b"\xff\xc0\x00\x11\x08"
    + struct.pack(">HH", 512, 512)
)
LONGEST_SEGMENT = b"\xff\xe1\xff\xff" + bytes(0xFFFF - 2)


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        ({"type": "image_url", "image_url": {"url": URL}}, 255),
        ({"type": "image_url", "image_url": {"url": URL, "detail": "high"}}, 255),
        ({"type": "image_url", "image_url": {"url": URL, "detail": "low"}}, 85),
        ({"type": "image_url", "image_url": URL}, 255),
        ({"type": "image_url", "image_url": URL, "detail": "low"}, 85),
        ({"type": "input_image", "image_url": URL}, 255),
        ({"type": "input_image", "file_id": "file-1"}, 1445),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}}, 255),
        ({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}, 1445),
        ({"type": "image_url", "image_url": {"url": "https://x/low.png", "detail": "high"}}, 1445),
        ({"type": "image_url", "image_url": {"url": "https://x/low.png", "detail": "low"}}, 85),
        ({"type": "image_url", "image_url": {"url": "data:image/jpeg;base64," + b64encode(JPEG).decode()}}, 255),
        ({"type": "image_url", "image_url": {"url": "data:image/jpeg;base64," + b64encode(JPEG[:-4]).decode()}}, 1445),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}}, 1445),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,é"}}, 1445),
        ({"type": "image_url", "image_url": {"url": "data:"}}, 1445),
        ({"type": "image_url", "image_url": None}, 1445),
        ({"type": "image_url", "image_url": [{"url": URL}]}, 1445),
        ({"type": "image_url"}, 1445),
        ({"type": "image", "source": [BASE64]}, 1445),
    ],
)
def test_an_image_costs_by_its_size(part: dict[str, Any], tokens: int) -> None:
    """In whatever form it is sent; as the largest image if its size is not in the request. Never by its base64 text."""
    assert count_part(orjson.dumps(part), len, GPT) == tokens
    low, mini = tokens == 85, 2833 + 5667 * (tokens - 85) // 170
    assert count_part(orjson.dumps(part), len, MINI) == (2833 if low else mini)


LONG = "A" * 9999


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        ({"type": "input_audio", "input_audio": {"data": LONG, "format": "wav"}}, count_audio(9999, is_wave=True)),
        ({"type": "input_audio", "input_audio": {"data": LONG, "format": "mp3"}}, count_audio(9999, is_wave=False)),
        ({"type": "input_audio", "input_audio": {"data": LONG, "format": []}}, count_audio(9999, is_wave=False)),
        ({"type": "input_audio", "data": LONG}, count_audio(9999, is_wave=False)),
        ({"type": "audio_url", "audio_url": {"url": "data:" + "A" * 9994}}, count_file(9999)),
        ({"type": "video_url", "video_url": {"url": "data:" + "A" * 9994}}, count_file(9999)),
        ({"type": "file", "file": {"filename": "a.pdf", "file_data": LONG}}, count_file(9999)),
        ({"type": "input_file", "filename": "a.pdf", "file_data": LONG}, count_file(9999)),
        ({"type": "document", "source": {"type": "base64", "data": LONG}}, count_file(9999)),
        ({"type": "file", "file": {"file_data": "data:text/," + LONG[:3989]}}, count_file(4000, is_text=True)),
        ({"type": "file", "file": {"file_id": "file-1"}}, count_file(None)),
        ({"type": "file", "file": "file-1"}, count_file(None)),
        ({"type": "document", "source": None}, count_file(None)),
    ],
)  # fmt: skip
def test_audio_and_files_cost_their_bounds(part: dict[str, Any], tokens: int) -> None:
    """Their length decides, in whatever form they are sent. One that is only named gets an estimate."""
    assert count_part(orjson.dumps(part), len, GPT) == tokens <= UNSEEN_FILE_TOKENS + 3


@pytest.mark.parametrize(
    "part",
    [
        b"5",
        b"null",
        b'"text"',
        b"{}",
        b'{"type":5,"text":"x"}',
        b'{"type":"later","later":{"text":"x"}}',
        b'{"type":"video_url","video_url":{"url":"https://x/y.mp4"}}',
        b'{"type":"input_audio","input_audio":{"id":"1"}}',
        b'{"type":%s}' % DEEP,
        b'{"type":"x","x":%s}' % DEEPER,
        b'{"type":"\xff"}',
        b'{"type":"x","x":1%s}' % (b"0" * 5000),
        b"{",
        b'{"type":"x","y":"\\ud83d"}',
    ],
    ids=lambda part: part[:30].decode("latin-1"),
)
def test_any_other_part_costs_its_json(part: bytes) -> None:
    """Parts of an unknown type, and parts that cannot be decoded."""
    assert count_part(part, len, GPT) == len(part.decode("utf-8", "replace"))


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (BASE64, Size(512, 512)),
        (b64encode(JPEG).decode(), Size(512, 512)),
        (b64encode(JPEG + bytes(JPEG_HEAD_CHARS)).decode(), Size(512, 512)),
        (b64encode(b"\xff\xd8" + 2 * LONGEST_SEGMENT + JPEG[2:]).decode(), Size(512, 512)),
        (b64encode(b"\xff\xd8" + 3 * LONGEST_SEGMENT + JPEG[2:]).decode(), None),
        (BASE64[:20], None),
        ("A" * 100, None),
        ("A", None),
        ("é", None),
        ("", None),
    ],
    ids=lambda value: f"{len(value)}_{value[:1]}" if isinstance(value, str) else None,
)
def test_a_size_is_read_from_the_first_bytes(data: str, size: Size | None) -> None:
    """They may be cut off. A size that comes later than that is not looked for."""
    assert read_image_size(data) == size


KINDS = st.sampled_from(["image_url", "image", "input_audio", "file", "input_file", "document", "video_url", "text"])
PARTS = odd_objects(
    "image_url", "url", "detail", "source", "data", "input_audio", "format", "file", "file_data", type=KINDS
)


@given(PARTS.map(dump) | st.binary(max_size=60))
def test_any_part_is_counted(raw: bytes) -> None:
    """Nothing is raised, and no count is negative."""
    assert count_part(raw, count_by_heuristic, GPT) >= 0
