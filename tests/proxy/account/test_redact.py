"""A secret is hidden however it is written."""

import base64
import random
import string
import time
from dataclasses import replace
from math import ceil
from typing import Any

import orjson
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from trimtab.proxy.account.redact import (
    LOOK_BYTES,
    MAX_PIECED,
    WORDY_CHARS,
    Hidden,
    find_seeds,
    read_own,
    read_secret,
    redact,
    redact_body,
    redact_text,
)
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.policy import Same

KEY = "sk-PLANTED/key+0123"


def redact_nested(body: bytes, depth: int, secret: str) -> str:
    """The innermost text of JSON in JSON, after a credential is hidden in it."""
    for _ in range(depth):
        body = orjson.dumps({"text": body.decode()})
    told = orjson.loads(redact_body(body, Hidden.of({secret})))
    for _ in range(depth):
        told = orjson.loads(told["text"])
    return told["text"]


@given(
    secret=st.text(min_size=1, max_size=20).filter(lambda one: not set(one) & {*"*{}:text"}), text=st.text(max_size=40)
)
def test_a_secret_is_found_in_json_however_it_is_escaped(secret, text):
    body = orjson.dumps({"text": text + secret + text})
    for written in (body, body.replace(b"/", b"\\/")):
        assert secret not in orjson.loads(redact(written, Hidden.of({secret})))["text"]


@given(st.sets(st.integers(0, len(KEY) - 1)), st.integers(0, 2))
@example({0}, 0)
@example({len(KEY) - 1}, 2)
def test_any_of_its_characters_may_be_an_escape_at_any_depth(escaped, depth):
    written = "".join(f"\\u{ord(each):04X}" if at in escaped else each for at, each in enumerate(KEY))
    body = b'{"text":"before ' + written.encode() + b' after"}'
    assert redact_nested(body, depth, KEY) == "before *** after"


def test_a_body_stays_json_if_a_secret_is_a_part_of_a_number_or_of_an_escape():
    body = b'{"n": 123456, "deep": [{"1234": "a 1234"}], "line": "\\nabc"}'
    told = orjson.loads(redact_body(body, Hidden.of({"1234", "nabc"})))
    assert told["n"] == "***56"
    assert told["deep"] == [{"***": "a ***"}]
    assert b"1234" not in redact_body(body, Hidden.of({"1234"}))


def test_other_bytes_stay():
    body = b'{ "a" : "\\u4e2d \\/ \\u0041", "b":"\xff"}'
    assert redact_body(body, Hidden.of({KEY})) == body
    assert redact_body(b"no JSON " + KEY.encode(), Hidden.of({KEY})) == b"no JSON ***"
    assert redact_text(f"a\ud800 {KEY}", Hidden.of({KEY})) == "a? ***"


WIDE = "pässwörd-中文-🔑🗝-0123"


@pytest.mark.parametrize("pattern", ["{:04x}", "{:04X}"])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_characters_beyond_ascii_may_be_escapes_too(pattern, depth):
    units = WIDE.encode("utf-16-be")
    written = "".join("\\u" + pattern.format(units[at] << 8 | units[at + 1]) for at in range(0, len(units), 2))
    body = f'{{"text":"before {written} after"}}'.encode()
    assert redact_nested(body, depth, WIDE) == "before *** after"


@pytest.mark.parametrize("before", ["", "a", "ab", "user:", "\n"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("secret", [KEY, "sk-~~~???>>>-0123456789"])
def test_a_secret_is_found_in_base64(before, encode, secret):
    body = orjson.dumps({"url": "data:text/plain;base64," + encode(f"{before}{secret}\n".encode()).decode()})
    for written in (body, body.replace(b"/", b"\\/")):
        told = orjson.loads(redact_body(written, Hidden.of({secret})))["url"].partition("base64,")[2]
        assert "***" in told
        assert len(told) <= len(before) * 4 / 3 + 10


def test_a_secret_is_found_in_hexadecimal_digits_in_a_url_and_in_latin_1():
    """As programs print bytes; a key of the configuration, and one of the request."""
    own = read_own(Same(load_config(settings=[f"upstream.api_key={KEY}"], environment={})))
    for hidden in (Hidden.of({KEY}), Hidden.of((), own)):
        for digits in (KEY.encode().hex(), KEY.encode().hex().upper()):
            body = orjson.dumps({"dump": f"00{digits}0a"})
            assert orjson.loads(redact_body(body, hidden)) == {"dump": "00***0a"}
        for quoted in ("sk-PLANTED%2Fkey%2B0123", "sk-PLANTED%2fkey%2b0123"):
            assert redact_text(f"GET /?api_key={quoted}&a=b", hidden) == "GET /?api_key=***&a=b"
    seen = "pässwörd-0123".encode("latin-1").decode("ascii", "surrogateescape")  # in a header
    assert redact_text("it is pässwörd-0123", Hidden.of({seen})) == "it is ***"


@pytest.mark.parametrize("at", range(0, 76, 3))
def test_a_secret_is_found_in_lines_of_base64(at):
    encoded = base64.encodebytes(("A" * at + RANDOM + "\nNEXT=1\n").encode()).decode()
    told = redact_text(orjson.dumps({"text": encoded}).decode(), Hidden.of({RANDOM}))
    known = base64.b64encode(RANDOM.encode()).decode()
    seen = base64.b64decode("".join(orjson.loads(told)["text"].replace("***", "").split()) + "===")
    assert not [start for start in range(len(RANDOM) - 7) if RANDOM[start : start + 8].encode() in seen]
    assert known not in told


RANDOM = "sk-proj-9mQx7TzLw2Rb5KcVn8Yd3FgHs6JpAe1U"


def test_the_beginning_and_the_end_of_a_secret_are_hidden_at_a_cut():
    hidden = Hidden.of({RANDOM})
    told = {redact_text(f"key={RANDOM[:at]}[trimtab: cut]", hidden) for at in range(16, len(RANDOM) + 1)}
    assert told == {"key=***[trimtab: cut]"}
    told = {redact_text(f"cut]{RANDOM[at:]} more", hidden) for at in range(len(RANDOM) - 8)}
    assert told == {"cut]*** more"}


@pytest.mark.parametrize("written", ["/", r"\/", '"', r"\"", r"\\\"", "\\", r"\\"])
def test_a_piece_goes_on_behind_an_escaped_quote_or_slash(written):
    secret = f"{RANDOM[:20]}{written[-1]}{RANDOM[20:]}"
    assert redact_text(f"a {RANDOM[:20]}{written}{RANDOM[20:24]} b", Hidden.of({secret})) == "a *** b"


@given(st.data(), st.integers(0, 2))
def test_a_piece_is_hidden_whatever_json_escapes_in_it(data, depth):
    secret = data.draw(st.text(r'abcXYZ0123456789"\/', min_size=40, max_size=90))
    length = data.draw(st.integers(20, len(secret) - 1))
    piece = data.draw(st.sampled_from([secret[:length], secret[-length:]]))
    assume(len(piece.replace("\\", "")) >= WORDY_CHARS)
    for body in (written := orjson.dumps({"text": f"before {piece} after"}), written.replace(b"/", b"\\/")):
        assert redact_nested(body, depth, secret).replace("\\", "") == "before *** after"


def test_what_keys_have_in_common_stays():
    text = "a key begins with sk-proj-, sk-ant-api03- or github_pat_; the model is gpt-4o-mini"
    hidden = Hidden.of({RANDOM, "sk-ant-api03-a1b2c3d4e5f6", "github_pat_a1b2c3d4e5f6", "my-gpt-models-development"})
    assert redact_text(text, hidden) == text


def own(*keys: str) -> Hidden:
    return Hidden.of((), read_own(Same(load_config("", settings=[f"client_keys={list(keys)}"]))))


def test_a_key_that_is_a_word_is_hidden_only_if_it_is_named_as_a_key():
    words, test = own("test", "user", "1234"), own("test")
    for text in ("run the tests", 'a "test", the test.', '{"role":"user"}', "user: 1234", "n=1234"):
        assert redact_text(text, words) == text
    for text, told in (
        ("Authorization: Bearer test", "Authorization: Bearer ***"),
        ('{"api_key": "test"}', '{"api_key": "***"}'),
        ('{"a":"{\\"api_key\\": \\"test\\"}"}', '{"a":"{\\"api_key\\": \\"***\\"}"}'),
        ("OPENAI_API_KEY=test python x.py", "OPENAI_API_KEY=*** python x.py"),
        ("the password is test", "the password is ***"),
        ("the password is testing", "the password is testing"),
    ):
        assert redact_text(text, test) == told


@pytest.mark.parametrize("before", ["", " ", '"', "\\n", "\\u4e2d", "-"])
def test_a_short_key_is_hidden_if_it_stands_alone(before):
    assert redact_text(f"{before}k3y-b.", own("k3y-b")) == f"{before}***."
    assert redact_text("mark3y-b k3y-bat", own("k3y-b")) == "mark3y-b k3y-bat"


@pytest.mark.parametrize("secret", ["/" + KEY, "pässwörd-0123"])
def test_many_backslashes_take_linear_time(secret):
    """Quadratic time would be hours, and no other thread could run."""
    escaped = "".join(f"\\u{ord(each):04x}" for each in secret)
    text = "\\" * 300_000 + f" {escaped} " + "\\" * 300_001
    assert redact_text(text, Hidden.of({secret})) == text.replace(escaped, "***")
    assert own("k3y-b").secrets[0].is_bounded
    assert redact_text(text + " \\u006b3y-b", own("k3y-b")) == text + " ***"


LETTERS = string.ascii_letters + string.digits
LONG = "".join(random.Random(1).choices(LETTERS, k=6000))  # noqa: S311 - a test is to be the same each time
HONEST = b'{"a":"%b"}' % (b"Nothing to see here. " * 7_600)
MAX_RATIO = 100
"""Of processor time to that for an honest text, also of 160 kB. It is up to 34, however busy the machine is and with
coverage, too; a search that compares what it has found again takes a thousand times as much."""


def _measure_redaction(text: bytes, hidden: Hidden) -> float:
    started = time.thread_time()
    redact(text, hidden)
    return time.thread_time() - started


@pytest.mark.parametrize(
    ("secret", "unit"),
    [
        (LONG, LONG[:8] + " "),
        (LONG, LONG[:400] + " "),
        (LONG, "".join(f"\\u{ord(each):04x}" for each in LONG[:8]) + " "),
        (LONG, "\\" * 200 + LONG[:8]),
        ("a" * 5000 + "B1", "a" * 4000 + " "),
        ('"/' * 2000 + LONG[:40], '\\"\\/' * 1000),
    ],
    ids=["seeds", "beginnings", "escaped", "backslashes", "one letter", "quoted"],
)
def test_the_time_is_linear_whatever_a_client_chooses(secret: str, unit: str) -> None:
    for whole in ("", "".join(f"\\u{ord(each):04x}" if each == "a" else each for each in secret[:5002])):
        body = b'{"a":"' + (unit * (160_000 // len(unit)) + whole).encode() + b'"}'
        hidden = Hidden.of({secret})
        honest = min(_measure_redaction(HONEST, hidden) for _ in range(2))
        assert any(_measure_redaction(body, hidden) < MAX_RATIO * honest for _ in range(2))


@given(st.data())
def test_a_piece_is_hidden_as_long_as_it_is(data: st.DataObject) -> None:
    secret = LONG[: data.draw(st.integers(20, 300))]
    length = data.draw(st.integers(16, len(secret) - 1))
    piece = data.draw(st.sampled_from([secret[:length], secret[-length:]]))
    escaped = data.draw(st.sets(st.integers(0, length - 1), max_size=4))
    written = "".join(f"\\u{ord(each):04x}" if at in escaped else each for at, each in enumerate(piece))
    before, after = data.draw(st.text("-. \n", max_size=9)), data.draw(st.text("-. \n", max_size=9))
    assert redact(f"{before}{written}{after}".encode(), Hidden.of({secret})) == f"{before}***{after}".encode()


@given(st.integers(0, 6000 - 40), st.integers(40, 400), st.text("-. \n", max_size=70), st.text("-. \n", max_size=9))
def test_a_longer_piece_from_within_a_long_credential_is_hidden(at: int, length: int, before: str, after: str) -> None:
    hidden = Hidden.of({LONG})
    encoded = base64.b64encode(LONG.encode()).decode()
    for whole in (LONG, encoded[4:-4]):
        piece = whole[at : at + length]
        assert redact(f"{before}{piece}{after}".encode(), hidden) == f"{before}***{after}".encode()


class _Looks(dict[bytes, int]):
    """Counts how often it is asked."""

    number = 0

    def get(self, key: bytes, default: Any = None) -> Any:
        self.number += 1
        return super().get(key, default)


def _count_searches(secret: str) -> int:
    """How often an honest text is searched through for this credential."""
    return sum(len(one.forms) + len(one.seeds) for one in Hidden.of({secret}).secrets)


def test_a_long_credential_costs_an_honest_text_little() -> None:
    """As many searches as a short one, however long it is, and a look here and there: its pieces would be dozens."""
    assert _count_searches(LONG) <= _count_searches(RANDOM)
    body = b'{"a":"%b"}' % (b"Nothing to see here. " * 2000)
    hidden = Hidden.of({LONG})
    secrets = tuple(replace(one, grams=_Looks(one.grams)) for one in hidden.secrets)
    assert redact(body, replace(hidden, secrets=secrets)) == body
    looks = [one.grams.number for one in secrets if isinstance(one.grams, _Looks)]
    assert looks == [ceil(len(body) / LOOK_BYTES)] * len(secrets)


def test_a_piece_begins_and_ends_with_a_whole_character() -> None:
    secret = f"{RANDOM[:20]}\N{HIRAGANA LETTER A}{RANDOM[20:]}"
    for other in "\N{HIRAGANA LETTER I}\N{KATAKANA LETTER A}":
        assert redact_text(f"key={RANDOM[:20]}{other} more", Hidden.of({secret})) == f"key=***{other} more"
    for other in "\N{HIRAGANA LETTER MO}\u4042":
        assert redact_text(f"key={other}{RANDOM[20:]} more", Hidden.of({secret})) == f"key={other}*** more"


# What is searched for finds a credential, and is not found in ordinary text.

KEYS = st.text("abcXYZ0123456789-_", min_size=44, max_size=200)
SCHEME_CHARS = 27
"""The longest beginning that keys of one provider may have in common."""


@given(KEYS, st.integers(SCHEME_CHARS + WORDY_CHARS, 200))
def test_each_long_beginning_and_end_holds_a_seed(key, length):
    seeds = [seed.text for seed in find_seeds(key)]
    assert any(seed in key[:length] for seed in seeds)
    assert any(seed in key[-length:] for seed in seeds)


@pytest.mark.parametrize("scheme", ["sk-proj-", "sk-ant-api03-", "github_pat_", "sk-or-v1-"])
def test_what_all_keys_of_a_provider_begin_with_is_no_seed(scheme):
    seeds = [seed.text for seed in find_seeds(scheme + "a1b2c3d4e5f6a7b8c9d0e1f2a3b4")]
    assert seeds[0] == "a1b2c3d4"


@pytest.mark.parametrize(
    ("key", "is_bounded", "is_word"),
    [("test", True, True), ("1234", True, True), ("k3y-b", True, False), ("admin-token-with-words", False, False)],
)
def test_a_short_key_of_the_configuration_counts_only_in_its_place(key, is_bounded, is_word):
    (secret,) = read_own(Same(load_config("", settings=[f"upstream.api_key={key!r}"])))
    assert (secret.is_bounded, secret.is_word) == (is_bounded, is_word)


def test_pieces_of_the_operators_keys_are_searched_for_before_those_of_many_clients():
    clients = [f"sk-client-{number:020}" for number in range(MAX_PIECED)]
    own = read_own(
        Same(load_config("", settings=[f"client_keys={clients}", "upstream.api_key=sk-operator-0123456789"]))
    )
    assert len(own) == MAX_PIECED + 1
    assert own[0].text == "sk-operator-0123456789"
    assert own[0].seeds
    assert not own[-1].seeds


def test_a_secret_shows_nothing_of_itself():
    assert "planted" not in repr(read_secret("sk-planted-0123456789"))
