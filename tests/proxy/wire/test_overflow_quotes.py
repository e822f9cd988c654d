"""Whether the text of a refusal also appears in its request."""

import html
from collections.abc import Callable
from urllib.parse import quote

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.wire.overflow import OVERLAP_CHARS, PIECE_CHARS, Overflow, Quoted, find_quotes, read_overflow

PLANT = "maximum context length is 2048 tokens"


def refuse(message: str) -> Overflow:
    """The overflow in an error with this message."""
    overflow = read_overflow(400, orjson.dumps({"error": {"message": message}}))
    assert overflow is not None
    return overflow


def say(text: str, **members: object) -> bytes:
    """A request with this text."""
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **members})


def test_a_servers_own_words_are_no_quote() -> None:
    """Even if the request talks about context windows, as long as it has none of the numbers that are used."""
    overflow = refuse("This model's maximum context length is 32768 tokens. However, you requested 40001 tokens.")

    assert find_quotes(overflow, say("Why is the maximum context length exceeded? It was 8192, 327680 or 132768.")) == 0


SERVERS: list[Callable[[str], str]] = [
    lambda said: f"Only user and tool roles are supported, got {said}.",
    lambda said: f"invalid role {said!r}",
    lambda said: f"invalid role {orjson.dumps(said).decode()}",
    lambda said: f"invalid role {html.escape(said)}",
    lambda said: f"no such model: {quote(said)} (maximum context length is 2048 tokens)",
    lambda said: said.upper(),
    lambda said: " ".join(said.split()),
]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(
    "said", [PLANT, f"x\n{PLANT}", f'a "b" <c>\t{PLANT}', f"é {PLANT}\\n", "maximum   context\nlength is 2048 tokens"]
)
@pytest.mark.parametrize("written", ["plain", "escaped", "surrogate", "nan"])
def test_words_are_known_however_client_and_server_write_them(
    server: Callable[[str], str], said: str, written: str
) -> None:
    """Escapes, white space, quotation marks and case do not count. A body that few decoders accept is read."""
    body = say(said)
    if written != "plain":
        escaped = "".join(f"\\u{ord(char):04x}" for char in said).encode()
        body = body.replace(orjson.dumps(said)[1:-1], escaped)
    if written == "surrogate":
        body = body.replace(b'"model"', b'"x":"\\ud800","model"')
    if written == "nan":
        body = body.replace(b'"model"', b'"x":NaN,"model"')

    overflow = read_overflow(400, orjson.dumps({"error": {"message": server(said)}}))
    assert overflow is None or find_quotes(overflow, body) is Quoted.WORDS


@pytest.mark.parametrize(
    "digits", ["\uff12\uff10\uff14\uff18", "\U0001d7d0\U0001d7ce\U0001d7d2\U0001d7d6", "2,048", "2_048"]
)
def test_digits_are_known_in_whatever_form(digits: str) -> None:
    """In full width, in another script, with separators, or escaped as a surrogate pair."""
    said = PLANT.replace("2048", digits)
    overflow = Overflow(refuse(PLANT).kind, f"got {said}", limit=2048)
    halves = said.encode("utf-16-be")
    escaped = "".join(f"\\u{halves[at : at + 2].hex()}" for at in range(0, len(halves), 2))
    for body in (say(said), f'{{"x":"{escaped}"}}'.encode(), said.encode("ascii", "backslashreplace")):
        assert find_quotes(overflow, body) is not Quoted.NOTHING


@pytest.mark.parametrize(
    ("message", "text", "quoted"),
    [
        ("message '2048': maximum context length exceeded, 9000 tokens", "2048", Quoted.NUMBER),
        ("got role: maximum context length is 4096", "so maximum context length is 40960000", Quoted.WORDS),
        ("prompt has 9000 tokens, its limit is set to the context length of 4096", "40960000", Quoted.NUMBER),
        ("context length is 4000 tokens", "length is 4000", Quoted.NUMBER),
        ("maximum context length is 4000 tokens", "port 14000 and 40001", Quoted.NOTHING),
    ],
)
def test_a_number_alone_makes_a_guess_of_what_it_teaches(message: str, text: str, quoted: Quoted) -> None:
    """It must be a whole run of digits; at the end of the refusal it may be the beginning of a cut number."""
    assert find_quotes(refuse(message), say(text)) is quoted


def test_words_without_a_number_are_looked_for_too() -> None:
    """A refusal without a number is recognised by its wording."""
    overflow = refuse("context length exceeded")

    assert find_quotes(overflow, say("it said: Context_Length -- exceeded!")) is Quoted.WORDS
    assert find_quotes(overflow, say("it said something else")) is Quoted.NOTHING


def test_what_cannot_be_read_counts_as_quoted() -> None:
    """It might contain the text."""
    assert find_quotes(refuse(PLANT), b'{"x":"\xff\xfe"}') is Quoted.WORDS


@given(st.integers(0, 3 * OVERLAP_CHARS))
def test_words_are_found_where_a_long_body_is_cut(before: int) -> None:
    """The overlap of two pieces is longer than any text that is searched for."""
    filler = "x" * (PIECE_CHARS - before)

    assert find_quotes(refuse(PLANT), say(f"{filler} {PLANT}")) is Quoted.WORDS


@given(st.text(max_size=200), st.binary(max_size=200))
def test_whatever_comes_is_judged(text: str, body: bytes) -> None:
    """Nothing is raised."""
    overflow = Overflow(refuse(PLANT).kind, text, limit=2048, requested=3000)

    assert find_quotes(overflow, body) in set(Quoted)
