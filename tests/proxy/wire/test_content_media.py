"""What the parts of a message that are not text cost."""

import base64
import struct
from base64 import b64encode
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import dump, odd_objects

from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.content import (
    JPEG_HEAD_CHARS,
    MAX_NAME_CHARS,
    count_part,
    is_payload,
    read_image_size,
    write_line,
)
from trimtab.rules.tokens.families import find_family
from trimtab.rules.tokens.media import FRAME_TOKENS, MAX_GUESS_TOKENS, PAGE_TOKENS, UNSEEN_FILE_TOKENS, Size

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
        ({"type": "input_image", "file_id": "file-1"}, 425),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}}, 255),
        ({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}, 425),
        ({"type": "image_url", "image_url": {"url": "https://x/low.png", "detail": "high"}}, 425),
        ({"type": "image_url", "image_url": {"url": "https://x/low.png", "detail": "low"}}, 85),
        ({"type": "image_url", "image_url": {"url": "data:image/jpeg;base64," + b64encode(JPEG).decode()}}, 255),
        ({"type": "image_url", "image_url": {"url": "data:image/jpeg;base64," + b64encode(JPEG[:-4]).decode()}}, 425),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}}, 425),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,é"}}, 425),
        ({"type": "image_url", "image_url": {"url": "data:"}}, 425),
        ({"type": "image_url", "image_url": None}, 425),
        ({"type": "image_url", "image_url": [{"url": URL}]}, 425),
        ({"type": "image_url"}, 425),
        ({"type": "image", "source": [BASE64]}, 425),
    ],
)
def test_an_image_costs_by_its_size(part: dict[str, Any], tokens: int) -> None:
    """In whatever form it is sent; as a small image if its size is not in the request. Never by its base64 text."""
    assert count_part(orjson.dumps(part), len, GPT).tokens == tokens
    assert count_part(orjson.dumps(part), len, MINI).tokens == {85: 2833, 255: 8500, 425: 14167}[tokens]


def test_what_is_not_read_is_a_guess_and_no_guess_is_above_that_of_a_file() -> None:
    """An image whose size is read is counted. A video may have many pictures."""
    shown, hidden = ({"type": "input_image", "image_url": url} for url in (URL, "https://x/y.png"))
    assert count_part(orjson.dumps(shown), len, GPT) == (255, 0)
    assert count_part(orjson.dumps(hidden), len, GPT) == (425, 425)
    frames = ["data:image/jpeg;base64," + b64encode(JPEG + bytes(90_000)).decode()] * 32
    found = count_part(orjson.dumps({"type": "video", "video": frames}), len, GPT)
    assert found.guessed == MAX_GUESS_TOKENS
    assert found.tokens < MAX_GUESS_TOKENS + 200


PDF = "data:application/pdf;base64," + b64encode(b"%PDF-1.4 << /Type /Pages /Count 3 >>" + bytes(900_000)).decode()
PAGES = FRAME_TOKENS + 3 * PAGE_TOKENS
SOUND = b64encode(b"ID3\x04" + bytes(1_199_996)).decode()
HEARD = FRAME_TOKENS + 750
FILM = (
    "data:video/mp4;base64,"
    + b64encode(
        b"\x00\x00\x00\x20ftypisom" + bytes(900_000) + b"mvhd" + struct.pack(">BxxxIIII", 0, 0, 0, 1, 10) + bytes(80)
    ).decode()
)
SEEN = FRAME_TOKENS + 660
WORDS = b64encode(b"word " * 600).decode()
UNKNOWN = FRAME_TOKENS + UNSEEN_FILE_TOKENS


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        ({"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}}, PAGES),
        ({"type": "input_file", "filename": "a.pdf", "file_data": PDF}, PAGES),
        ({"type": "input_file", "filename": "a.pdf", "file_data": PDF.partition(",")[2]}, PAGES),
        ({"type": "document", "source": {"type": "base64", "media_type": "x", "data": PDF.partition(",")[2]}}, PAGES),
        ({"type": "document_url", "document_url": PDF}, PAGES),
        ({"type": "input_file", "file_data": "data:text/plain;base64," + WORDS}, FRAME_TOKENS + len(WORDS) // 6),
        ({"type": "file_url", "file_url": {"url": PDF}}, PAGES),
        ({"type": "resource", "resource": {"uri": "file:///a", "blob": PDF.partition(",")[2]}}, PAGES + 60),
        ({"type": "input_audio", "input_audio": {"data": SOUND, "format": "mp3"}}, HEARD),
        ({"type": "input_audio", "data": SOUND}, HEARD),
        ({"type": "audio_url", "audio_url": {"url": "data:audio/mpeg;base64," + SOUND}}, HEARD),
        ({"type": "audio_url", "audio_url": "data:audio/mpeg;base64," + SOUND}, HEARD),
        ({"type": "video_url", "video_url": {"url": FILM}}, SEEN),
        ({"type": "input_video", "video_url": FILM}, SEEN),
        ({"type": "video_url", "video_url": {"url": "https://x/y.mp4"}}, UNKNOWN),
        ({"type": "file", "file": {"file_id": "file-1"}}, UNKNOWN),
        ({"type": "file", "file": "file-1"}, UNKNOWN),
        ({"type": "document", "source": None}, UNKNOWN),
        ({"type": "input_file", "file_url": "https://x/y.pdf"}, UNKNOWN),
    ],
)  # fmt: skip
def test_files_are_guessed_by_what_is_in_them(part: dict[str, Any], tokens: int) -> None:
    """By pages or seconds, in whatever form they are sent. One that is only named is guessed, too."""
    found = count_part(orjson.dumps(part), len, GPT)
    assert found.tokens == tokens
    assert found.guessed in (tokens, tokens - 60)


@pytest.mark.parametrize(
    "part",
    [
        b'{"type":5,"text":"x"}',
        b'{"type":"input_audio","input_audio":{"id":"1"}}',
        b'{"type":%s}' % DEEP,
        b'{"type":"x","x":%s}' % DEEPER,
        b'{"type":"x","x":1%s}' % (b"0" * 5000),
        b"{",
        b'{"type":"x","y":"\\ud83d"}',
    ],
    ids=lambda part: part[:30].decode("latin-1"),
)
def test_any_other_part_costs_its_json(part: bytes) -> None:
    """Parts of an unknown type, and parts that cannot be decoded."""
    assert count_part(part, len, GPT) == (len(part.decode("utf-8", "replace")), 0)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (BASE64, Size(512, 512)),
        (b64encode(JPEG).decode(), Size(512, 512)),
        (b64encode(JPEG + bytes(JPEG_HEAD_CHARS)).decode(), Size(512, 512)),
        (b64encode(b"\xff\xd8" + 2 * LONGEST_SEGMENT + JPEG[2:]).decode(), Size(512, 512)),
        (b64encode(b"\xff\xd8" + 3 * LONGEST_SEGMENT + JPEG[2:]).decode(), None),
        ("A" * 100, None),
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
    assert 0 <= count_part(raw, count_by_heuristic, GPT).guessed <= count_part(raw, count_by_heuristic, GPT).tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SOUND, True),
        ("data:image/png;base64," + BASE64, True),
        ("QUJD" * 300, True),
        (("QUJD" * 9 + "\n") * 60, True),
        (("QUJD" * 7 + "QUJ\n") * 60, False),
        ("QUJD" * 20, False),
        ("/".join(["path"] * 1000) + "\n" + "a line of a log: 5" * 99, False),
        (SOUND + "and a sentence at the end. " * 40, False),
    ],
)
def test_a_long_string_of_base64_is_a_file(text: str, expected: bool) -> None:  # noqa: FBT001
    """Text is none."""
    assert is_payload(text) is expected


SCREENSHOT = base64.b64encode(
    b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 1280, 800) + bytes(182_000)
)
END = "removed; get it again if needed]"


def line(part: Any, before: str = "") -> str:
    written = write_line(orjson.dumps(part), before)
    assert not written or written.startswith("[trimtab: image")
    return written.removeprefix("[trimtab: ").removesuffix(END).rstrip(" ,")


def in_url(address: str, **members: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": address, **members}}


def test_the_line_of_an_image_tells_type_size_and_bytes() -> None:
    """From its head and from the first bytes of the image, in whatever form it is sent."""
    assert line(in_url("data:image/png;base64," + SCREENSHOT.decode(), detail="high")) == "image/png 1280x800, 182 kB"
    assert line(in_url("data:image/png;base64,AAAA")) == "image/png, 3 bytes"
    assert line(in_url("data:image/JPEG;base64," + "A" * 4_000_000)) == "image/jpeg, 3.0 MB"
    source = {"type": "base64", "media_type": "image/webp", "data": SCREENSHOT.decode()}
    assert line({"type": "image", "source": source}) == "image/webp 1280x800, 182 kB"
    assert line({"type": "image", "source": {"type": "url", "url": "https://a.org/b/c.png"}}) == "image, c.png"
    assert line({"type": "input_image", "image_url": "https://a.org/shot.gif?key=secret#x"}) == "image, shot.gif"
    assert line({"type": "image_url"}) == "image"


@pytest.mark.parametrize(
    ("part", "before", "name"),
    [
        ({**in_url("data:image/png;base64,AAAA"), "filename": "C:\\a\\b c.png"}, "", "b_c.png"),
        (in_url("data:image/png;base64,AAAA", name="/shots/a.png"), "see x.png", "a.png"),
        ({**in_url("data:image/png;base64,AAAA"), "filename": 7, "title": "b.png"}, "see x.png", "b.png"),
        (in_url("data:image/png;base64,AAAA"), "First old.png, then shots/login-2.PNG:", "login-2.PNG"),
        (in_url("data:image/png;base64,AAAA"), "x.png" + " " * 300, ""),
        (in_url("https://a.org"), "", ""),
    ],
)
def test_a_file_is_named_if_something_names_it(part: dict[str, Any], before: str, name: str) -> None:
    """The part itself, its URL, or the last file name in the text before it."""
    assert line(part, before).rpartition(", ")[2] == (name or line(part).rpartition(", ")[2])
    assert not name or line(part, before).endswith(name)


@pytest.mark.parametrize(
    "part", [{"type": "file", "file": {"file_data": "image"}}, {"image": 1}, ["image"], "image", 1]
)
def test_what_is_no_image_has_no_line(part: Any) -> None:
    assert line(part) == ""


@given(name=st.text(max_size=200), before=st.text(max_size=400))
def test_no_name_ends_the_line_or_begins_another(name: str, before: str) -> None:
    """Whatever a client calls its files, the line only says that an image was there."""
    written = write_line(orjson.dumps({**in_url("data:image/png;base64,AAAA"), "name": name}), before)
    assert "\n" not in written
    assert (written.count("["), written.count("]")) == (1, 1)
    assert written.endswith(END)
    assert len(written) < 100 + MAX_NAME_CHARS
