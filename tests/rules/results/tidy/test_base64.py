"""Base64 named instead of carried."""

import base64
import hashlib
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.results.tidy.base64 import MIN_RUN_CHARS, name_base64


def noise(size: int) -> bytes:
    return b"".join(hashlib.sha256(str(number).encode()).digest() for number in range(size // 32 + 1))[:size]


def encode(size: int) -> str:
    return base64.b64encode(noise(size)).decode()


def wrap(text: str, width: int = 64, line_end: str = "\n") -> str:
    return line_end.join(text[start : start + width] for start in range(0, len(text), width))


def digest(text: str) -> str:
    return f"sha256 {hashlib.sha256(text.encode()).hexdigest()[:8]}"


def name(text: str, *, is_file: bool = False) -> str:
    return name_base64(text, is_file=is_file)


def test_data_urls_are_named() -> None:
    """Their type and the bytes they hold; a short one stays."""
    text = f'<img src="data:image/png;base64,{encode(48_213)}"> and <img src="data:image/gif;base64,R0lGODlhAQAB">'
    assert name(text) == (
        f'<img src="[trimtab: data URL image/png, 48213 bytes, {digest(encode(48_213))}, omitted here]"> and '
        '<img src="data:image/gif;base64,R0lGODlhAQAB">'
    )
    parameters = f"url(data:font/woff2;charset=utf-8;base64,{encode(900)})"
    assert name(parameters) == (f"url([trimtab: data URL font/woff2, 900 bytes, {digest(encode(900))}, omitted here])")


def test_different_content_has_different_names() -> None:
    """Two pictures of one size must not look equal to whoever compares results."""
    first, second = encode(3000), base64.b64encode(noise(3000)[::-1]).decode()
    for head in ("data:image/png;base64,", ""):
        assert name(head + first) == name(head + str(first))
        assert name(head + first) != name(head + second)


@pytest.mark.parametrize("size", [1000, 1001, 1002, 30_000, 100_000, 1_000_000])
def test_long_runs_are_named(size: int) -> None:
    """However long: one marker, and the text around it as it was."""
    marker = f"[trimtab: base64, {size} bytes, {digest(encode(size))}, omitted here]"
    assert name(f"before\n{encode(size)}\nbehind") == f"before\n{marker}\nbehind"
    safe = base64.urlsafe_b64encode(noise(size)).decode().rstrip("=")
    assert name(f"token={safe};") == f"token=[trimtab: base64, {size} bytes, {digest(safe)}, omitted here];"


@pytest.mark.parametrize("size", [1000, 4000, 99_999])
@pytest.mark.parametrize(("width", "line_end"), [(64, "\n"), (76, "\n"), (76, "\r\n"), (64, "\\n"), (64, "\\r\\n")])
def test_wrapped_blocks_are_named(size: int, width: int, line_end: str) -> None:
    """A certificate, a mail's attachment; also inside a JSON string."""
    head, tail = f"-----BEGIN CERTIFICATE-----{line_end}", f"{line_end}-----END CERTIFICATE-----"
    block = wrap(encode(size), width, line_end)
    assert name(head + block + tail) == f"{head}[trimtab: base64, {size} bytes, {digest(block)}, omitted here]{tail}"


@given(
    size=st.integers(1000, 3000),
    before=st.sampled_from(["", "a b", "\n", "\\", '"', "é", "\u6587"]),
    escapes=st.booleans(),
)
def test_json_stays_json(size: int, before: str, *, escapes: bool) -> None:
    """The marker stands within its string, whatever stands before it."""
    content = before + (wrap(encode(size)) if escapes else encode(size)) + "\n"
    text = msgspec.json.encode({"content": content, "size": size}).decode()
    named = name(text)
    assert len(named) < 200
    assert msgspec.json.decode(named)["size"] == size


@pytest.mark.parametrize(
    "text",
    [
        hashlib.sha256(b"").hexdigest() * 40,
        wrap(noise(4000).hex()),
        "ACGT" * 900,
        "abcdefghij" * 200,
        "0123456789" * 200,
        "/usr/lib/python3/site/packages/Module2/" * 60,
        "thisIsOneVeryLongCamelCaseIdentifier" * 60,
        "word another Word2\n" * 200,
        wrap("\n".join(f"tests/unit/case{number}/Inner" for number in range(200))),
        "=" * 4000,
        "-" * 4000,
        encode(700),
        wrap(encode(600)),
    ],
    ids=lambda text: text[:16],
)
def test_what_is_not_long_base64_stays(text: str) -> None:
    """Digests, sequences, paths, words, rules, and what is short."""
    assert name(text) is text


def test_a_file_keeps_what_may_be_edited() -> None:
    """In a code file only what nobody would copy into an edit."""
    short, long = encode(3000), encode(30_000)
    assert len(short) > MIN_RUN_CHARS
    text = f'KEY = "{short}"\nURL = "data:image/png;base64,{short}"\n'
    assert name(text, is_file=True) is text
    marker = f"[trimtab: base64, 30000 bytes, {digest(long)}, omitted here]"
    assert name(f'KEY = "{long}"', is_file=True) == f'KEY = "{marker}"'
    assert "image/png" in name(f'"data:image/png;base64,{long}"', is_file=True)


@given(
    parts=st.lists(
        st.sampled_from(
            [encode(800), encode(301), "=", "\n", "\\n", "-", " ", '"', "\\", "a" * 600, "data:x/y;base64,"]
        )
    )
)
def test_never_longer_and_nothing_else_goes(parts: list[str]) -> None:
    named = name("".join(parts))
    assert len(named) <= len("".join(parts))
    assert re.sub(r"\[trimtab: [^\]]*\]", "", named).count(" ") == "".join(parts).count(" ")
