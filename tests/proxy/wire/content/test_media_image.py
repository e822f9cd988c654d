"""The line that replaces a removed image."""

import base64
import struct
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.wire.content.media import MAX_NAME_CHARS, write_line

PNG = base64.b64encode(
    b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 1280, 800) + bytes(182_000)
)
END = "removed; get it again if needed]"


def line(part: Any, before: str = "") -> str:
    """The line for a part, without the end that all lines share."""
    written = write_line(orjson.dumps(part), before)
    assert not written or written.startswith("[trimtab: image")
    return written.removeprefix("[trimtab: ").removesuffix(END).rstrip(" ,")


def in_url(address: str, **members: Any) -> dict[str, Any]:
    """A part in the form of chat completions."""
    return {"type": "image_url", "image_url": {"url": address, **members}}


def test_a_data_url_tells_type_size_and_bytes() -> None:
    """From its head and from the first bytes of the image."""
    assert line(in_url("data:image/png;base64," + PNG.decode(), detail="high")) == "image/png 1280x800, 182 kB"
    assert line(in_url("data:image/png;base64,AAAA")) == "image/png, 3 bytes"
    assert line(in_url("data:image/JPEG;base64," + "A" * 4_000_000)) == "image/jpeg, 3.0 MB"


def test_other_forms_of_images_tell_the_same() -> None:
    """Anthropic's form, and a URL as a string."""
    source = {"type": "base64", "media_type": "image/webp", "data": PNG.decode()}
    assert line({"type": "image", "source": source}) == "image/webp 1280x800, 182 kB"
    assert line({"type": "image", "source": {"type": "url", "url": "https://a.org/b/c.png"}}) == "image, c.png"
    assert line({"type": "input_image", "image_url": "https://a.org/shot.gif?key=secret#x"}) == "image, shot.gif"
    assert line({"type": "image_url"}) == "image"


@pytest.mark.parametrize(
    ("part", "before", "name"),
    [
        ({**in_url("data:image/png;base64,AAAA"), "filename": "C:\\a\\b c.png"}, "", "b_c.png"),
        (in_url("data:image/png;base64,AAAA", name="/shots/a.png"), "see x.png", "a.png"),
        (in_url("data:image/png;base64,AAAA"), "First old.png, then shots/login-2.PNG:", "login-2.PNG"),
        (in_url("data:image/png;base64,AAAA"), "x.png" + " " * 300, ""),
        (in_url("data:image/png;base64,AAAA"), "no name", ""),
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
    """Only images are removed."""
    assert line(part) == ""


def test_json_that_defies_decoding_has_no_line() -> None:
    """It stays unchanged."""
    assert write_line(b'{"type":"image_url"', "") == ""


@given(name=st.text(max_size=200), before=st.text(max_size=400))
def test_no_name_ends_the_line_or_begins_another(name: str, before: str) -> None:
    """Whatever a client calls its files, the line only says that an image was there."""
    written = write_line(orjson.dumps({**in_url("data:image/png;base64,AAAA"), "name": name}), before)
    assert "\n" not in written
    assert (written.count("["), written.count("]")) == (1, 1)
    assert written.endswith(END)
    assert len(written) < 100 + MAX_NAME_CHARS
