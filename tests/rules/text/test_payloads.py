"""Files that are written out in a text: which are found, and that nothing else is."""

import random
from base64 import b64encode

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.steps import check_linear

from trimtab.rules.text.markers import START
from trimtab.rules.text.payloads import MIN_CHARS, _begin, hide_payloads

RANDOM = random.Random(3)  # noqa: S311 - the same data each time
PNG = b"\x89PNG\r\n\x1a\n" + RANDOM.randbytes(6000)
BASE64 = b64encode(PNG).decode()
URL = f"data:image/png;base64,{BASE64}"
DATA = RANDOM.randbytes(1501)
MARK = "[trimtab: image/png, 6 kB in Base64, omitted]"
MARK_DATA = "[trimtab: data, 2 kB in Base64, omitted]"


def _break(text: str, width: int, between: str = "\n") -> str:
    return between.join(text[at : at + width] for at in range(0, len(text), width))


def _encode(data: bytes) -> str:
    return b64encode(data).decode()


def _xxd(data: bytes) -> str:
    rows = (data[at : at + 16] for at in range(0, len(data), 16))
    pairs = (" ".join(row[at : at + 2].hex() for at in range(0, 16, 2)) for row in rows)
    return "\n".join(f"{16 * number:08x}: {row}  ................" for number, row in enumerate(pairs))


def _literals(data: bytes, before: str, behind: str) -> str:
    rows = (data[at : at + 12] for at in range(0, len(data), 12))
    return ("\n" if behind else "").join(
        "".join(f"{before}{byte:02x}{behind}" for byte in row).rstrip() for row in rows
    )


def _number(text: str, form: str) -> str:
    return "\n".join(form.format(number) + line for number, line in enumerate(text.split("\n"), 1))


def test_a_file_in_a_text_becomes_one_marker() -> None:
    """Whole, in whatever form; what is around it stays, and so does JSON, and all that is no file."""
    for text, left in [
        (f"Saved.\n\n![plan]({URL})\n\nDone.", f"Saved.\n\n![plan]({MARK})\n\nDone."),
        (orjson.dumps({"ok": True, "image": URL, "took": 3}).decode(), f'{{"ok":true,"image":"{MARK}","took":3}}'),
        (orjson.dumps({"image": URL}).decode().replace("/", "\\/"), f'{{"image":"{MARK}"}}'),
        (orjson.dumps({"image": BASE64}).decode().replace("/", "\\/"), f'{{"image":"{MARK}"}}'),
        (orjson.dumps({"pem": "-----BEGIN-----\n" + _break(_encode(DATA), 64) + "\n-----END-----"}).decode(),
         f'{{"pem":"-----BEGIN-----\\n{MARK_DATA}\\n-----END-----"}}'),
        ("See:\n" + _break(URL, 76) + "\nDone", f"See:\n{MARK}\nDone"),
        (f"sparse {_encode(bytes(900) + DATA)} end", f"sparse {MARK_DATA} end"),
        (f"hex {DATA[:500].hex()} end", "hex [trimtab: data, 500 bytes in hex, omitted] end"),
        (f"dump:\n{_xxd(DATA[:480])}\nend", "dump:\n[trimtab: data, 480 bytes in hex, omitted]\nend"),
        (f'"code": "0x{DATA[:500].hex()}"', '"code": "[trimtab: data, 500 bytes in hex, omitted]"'),
        ("x = {\n" + _literals(DATA[:300], "0x", ", ") + "\n};",
         "x = {\n[trimtab: data, 300 bytes in hex, omitted]\n};"),
        (f'x = b"{_literals(DATA[:300], chr(92) + "x", "")}"', 'x = b"[trimtab: data, 300 bytes in hex, omitted]"'),
        (orjson.dumps({"in": orjson.dumps({"pem": _break(_encode(DATA), 64)}).decode()}).decode(),
         f'{{"in":"{{\\"pem\\":\\"{MARK_DATA}\\"}}"}}'),
        (orjson.dumps({"image": BASE64}).decode().replace("+", "\\u002B").replace("=", "\\u003D"),
         '{"image":"[trimtab: image/png, 7 kB in Base64, omitted]"}'),
        (_number(_break(_encode(DATA), 76), "{:6d}→"), f"     1→{MARK_DATA}"),
        (_number(_break(_encode(DATA), 64), "a/cert.pem:{:d}:"), f"a/cert.pem:1:{MARK_DATA}"),
        ("> " + _break(_encode(DATA), 76, "\n> ") + "\n\nYes", f"> {MARK_DATA}\n\nYes"),
        ('x = (\n    "' + _break(_encode(DATA), 72, '"\n    "') + '"\n)', f'x = (\n    "{MARK_DATA}"\n)'),
        (_break(_encode(DATA), 76, " ") + " and so on", f"{MARK_DATA} and so on"),
        (_break(_encode(DATA[:1470]), 76) + "\n" + "key123" * 10, MARK_DATA.replace("2", "1") + "\n" + "key123" * 10),
        (f"data:image/png;base64,{_break(BASE64, 76, ' ')} is it", f"{MARK} is it"),
        ("src=\"data:image/svg+xml;utf8,<svg viewBox='0 0 24 24'><path d='M0 0h24v24'/></svg>\">",
         'src="[trimtab: image/svg+xml, 53 bytes as a data URL, omitted]">'),
    ]:  # fmt: skip
        hidden = hide_payloads(text)
        assert hidden.text == left
        assert hidden.moves_lines == (text.count("\n") > left.count("\n"))
        if text.startswith("{"):
            orjson.loads(left)
    for text in [
        "\n".join(["/usr/lib/python3/dist-packages/Some_Package-1/ThisIsALongFolder/AnotherOne02/mod" * 4] * 9),
        "\n".join(RANDOM.randbytes(64).hex() for _ in range(50)),
        "\n".join("sha512-" + _encode(RANDOM.randbytes(64)) for _ in range(50)),
        "\n".join(sign * 500 for sign in "=-/a0_"),
        "a_very_long_identifier_name_that_goes_on_and_on_" * 20,
        "\n".join(" ".join(str(1000 + (number * 37 + at) % 9000) for at in range(8)) for number in range(50)),
        "\n".join("".join(RANDOM.choice("ACGT") for _ in range(70)) for _ in range(50)),
        "\n".join("https://example.com/" + "Section12/SubSection/Page-Number-12/" * 12 for _ in range(9)),
        "\n".join("0x" + RANDOM.randbytes(32).hex() for _ in range(50)),
        _encode(DATA)[: MIN_CHARS - 8],
    ]:  # fmt: skip
        assert hide_payloads(text).text is text
    for text, start, begun in [
        ("AAAA", 0, 0),
        ("x AAAA", 2, 2),
        (r"\nAAAA", 1, 2),
        (r"\u1234AAAA", 1, 6),
        (r"x\tAAAA", 2, 3),
    ]:
        assert _begin(text, start) == begun


@given(
    pieces=st.lists(
        st.sampled_from(
            [URL, BASE64, _break(BASE64, 76), "\n", " ", "word ", '"', "data:", "\\/", "\\n", "A" * 50, "=", "ab " * 80]
        ),
        max_size=12,
    )
)  # fmt: skip
def test_what_is_left_holds_no_part_of_a_file(pieces: list[str]) -> None:
    """A second look finds nothing that the first has left, and no marker is broken."""
    left = hide_payloads("".join(pieces)).text
    assert hide_payloads(left).text == left
    assert left.count(START) == left.count(" omitted]")


@pytest.mark.parametrize(
    "unit", ["aB3" * 13 + "xx ", "000000: ab cd ef gh\n", "data:a/b;base64,AAAA", '"0x12, ', '\\n"ab ']
)
def test_hostile_texts_take_linear_time(unit: str) -> None:
    check_linear(lambda size: hide_payloads(unit * (size // len(unit))), 4000)
