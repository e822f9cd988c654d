"""An overflow is distinguished from all other errors, of any server, and its numbers are read."""

import html
import re
import string
from collections.abc import Callable
from urllib.parse import quote

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import dump
from support.sessions import DATA, needs_data

import trimtab.proxy.wire.overflow as overflow_module
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.overflow import (
    FIGURES,
    MAX_NUMBER,
    MAX_TEXT_CHARS,
    MEANINGS,
    OVERLAP_CHARS,
    PIECE_CHARS,
    Kind,
    Numbers,
    Overflow,
    Quoted,
    find_quotes,
    read_numbers,
    read_overflow,
)

RECORDED = DATA / "overflow_errors.jsonl"


def _read(message: str, status: int = 400, **members: object) -> Overflow | None:
    return read_overflow(status, orjson.dumps({"error": {"message": message, **members}}))


@needs_data
def test_recorded_overflows_are_recognised_with_their_numbers():
    rows = [orjson.loads(line) for line in RECORDED.read_bytes().splitlines()]
    # Silent servers send no error at all, and one text is known in part only.
    told = [
        row for row in rows if not row["body"].startswith("(no ") and row["confidence"] not in {"inferred", "partial"}
    ]
    assert len(told) > 50
    for row in told:
        found = CHAT.read_refusal(row["status"], row["body"].encode())
        assert found is not None, row["server"]
        assert (found.limit, found.requested) == (row["limit"], row["requested"]), row["server"]


@pytest.mark.parametrize(
    ("message", "limit", "requested"),
    [
        ("too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000.", 4081, 5000),
        (
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178.",
            272000,
            509178,
        ),
        ("Requested tokens (5000) exceed context window of 4096", 4096, 5000),
        ("Prompt tokens (5000) exceeds context size (4096)", 4096, 5000),
        ("current length is 5000 while limit is 4096", 4096, 5000),
        ("The prompt (total length 44393) is too long to fit into the model (context length 32768).", 32768, 44393),
        ("Your prompt is longer than the model's context length of 2048.", 2048, None),
        ("The total number of tokens (9000) exceeds the model's limit (4096).", 4096, 9000),
        ("Input too long: 5000 tokens, max 4096", 4096, 5000),
        ("Request exceeded the maximum context window: 40000 tokens requested, 32768 allowed", 32768, 40000),
        ("`inputs` must have less than 1024 tokens. Given: 1500", 1024, 1500),
        ("prompt is too long: 213,462 tokens > 200,000 maximum", 200000, 213462),
        ("The input exceeds the context window.", None, None),
        ("The prompt (total length 6287) is too long (context length 4096). Image tokens depend on sizes.", 4096, 6287),
        (
            "Number of input and maximum output tokens (9000) exceeded this model context window limit (8192)",
            8192,
            9000,
        ),
        ("length of prompt_tokens (32769) must be less than max_seq_len (32768).", 32768, 32769),
        ("Prompt length 9000 is greater than max_seq_len 8192", 8192, 9000),
        ("The prompt is 90000 tokens long but the model only supports 65536", 65536, 90000),
        ("Input length 164542 exceeds the maximum length 131072", 131072, 164542),
        ("messages token length must be in (0, 163840]", 163840, None),
        ("total message token length exceed model limit", None, None),
        ("prompt is too long: 300K tokens > 256K maximum", None, None),
        ("message size exceeds the context window of 32768 tokens", 32768, None),
        ("context overflow: 9000 tokens > 8000", 8000, 9000),
        ("Sequence too long: 9000 tokens, max 8192", 8192, 9000),
        ("Prompt tokens (9000) > max tokens (8192)", 8192, 9000),
        ("9000 tokens is over the 8192 token limit", 8192, None),
        ("the number of input tokens 9000 cannot exceed the total tokens limit 8192", 8192, 9000),
        ("tokens in request more than max tokens allowed: 9000 > 8192", 8192, 9000),
        ("inputs tokens (9000) must be less than 8192", 8192, 9000),
        ("input_tokens: 9000 > max_input_tokens: 8192", 8192, 9000),
        ("Input exceeds maximum length (8192 tokens)", 8192, None),
        ("You've exceeded the context limit for this model (8,192 tokens).", 8192, None),
        ("Total tokens of image and text exceed max message tokens", None, None),
        ("输入长度超过最大限制 32768", 32768, None),
        ("Prompt 超长", None, None),
    ],
)
def test_other_wordings_are_understood_too(message: str, limit: int | None, requested: int | None):
    found = _read(message)
    assert (found.kind, found.limit, found.requested) == (Kind.PROMPT, limit, requested)


@pytest.mark.parametrize("status", [200, 400])
def test_an_overflow_in_the_envelope_of_minimax_is_read(status: int):
    """Its answers have one, too, with the status of a success."""
    told = {"choices": None, "base_resp": {"status_code": 2013, "status_msg": "context window exceeds limit (2013)"}}
    found = read_overflow(status, orjson.dumps(told))
    assert found is not None
    assert (found.kind, found.is_flat) == (Kind.PROMPT, True)
    assert (
        read_overflow(200, orjson.dumps({"choices": [{}], "base_resp": {"status_code": 0, "status_msg": ""}})) is None
    )


@pytest.mark.parametrize(
    "message",
    [
        "Rate limit reached on tokens per min (TPM): Limit 10000, Used 9000, Requested 2000. Please try again in 6s.",
        "Too many tokens, please wait before trying again.",
        "Request too large on tokens per minute (TPM): Limit 10000, Requested 900, please try again in 2s.",
        "Invalid value for 'temperature': must be <= 2",
        "The model `gpt-9` does not exist or you do not have access to it.",
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
        "Your authentication token has exceeded its lifetime",
        "Invalid image: image in message is too large",
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got 200.",
        "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40.",
        "messages[4].tool_call_id is too long (max 40 chars)",
        "Invalid request: temperature is too large",
        "tool name 'x' is longer than 64 characters",
        "top_logprobs exceed the maximum of 20 tokens",
        "logit_bias: number of tokens exceeds maximum 300",
        "Number of stop tokens exceeds limit of 4",
        "Your request metadata value too long (max 512)",
        "Number of tools (200) in request is too large",
        "credit balance too low: request needs 5000 tokens which exceed your balance",
        "Unterminated JSON: request is longer than the Content-Length",
        "'input.tools[0].function.description' is too long. Maximum length is 1024 characters.",
        "The tool schema in your request is too large: 5000 properties, limit is 1000",
        "You have exceeded your monthly token limit. Upgrade your plan.",
        "The prompt cache key in your request is too long",
        "The requested context_length is not supported by the selected provider",
        "Request timed out: the prompt took longer than 60 seconds",
        "reasoning budget tokens (40000) exceeds max_tokens (32000)",
        "This request would exceed your organization's rate limit of 40,000 input tokens per minute",
        "messages.1: all messages must have non-empty content",
        "您的输入已超过每分钟速率限制 6000",
        "每分钟token数超过限制 60000",
        "今日 token 用量已超过上限 1000000",
        "您的 token 配额已超出限制",
        "API token 超过有效期",
        "消息数量超过上限 100",
        "文本内容超过审核限制",
        "图片大小超过限制",
        "输入的图片大小超过限制",
        "Thinking budget exceeds the maximum allowed tokens of 24576",
        "1 validation error: {'loc': ('messages', 3), 'msg': 'Field required', 'input': {'x': 'prompt is too long'}}",
    ],
)
def test_other_errors_are_no_overflows(message: str):
    assert _read(message) is None


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for this model",
        "`max_tokens` must be less than or equal to `8192`: it is less than the `context_window` for this model",
        "Requested output tokens 200000 more than max output tokens 8192",
        "max_output_tokens is more than the model's maximum output of 8192",
        "The value of max_tokens is above the maximum of 8192 for this model",
        "Output token limit exceeded: requested 20000, max 8192",
        "max_tokens 100000 is larger than the maximum output length 8192",
        "Max completion tokens cannot exceed 8192",
        "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 128000, but got 200000 instead.",
        "output length 20000 exceeds the maximum allowed output length of 8192 tokens",
        "The requested number of tokens to generate (20000) exceeds the limit 8192 tokens",
        "max_tokens is too large: 99999. This model supports at most 4096 completion tokens",
        "The maximum tokens you requested exceeds the model limit of 8192. Try again with a lower maximum.",
        "You requested 65536 tokens of output, which exceeds the model's limit of 32768 output tokens",
        "Requested number of output tokens (16384) exceeds the maximum of 8192",
        "max_new_tokens (9000) exceeds the maximum number of tokens 4096",
        "max_tokens must be at least 1, got 0.",
        "max_tokens参数超过最大限制 8192",
        "输出 token 数超过最大限制 4096",
    ],
)
def test_a_completion_that_is_too_long_says_nothing_of_the_prompt(message: str):
    found = _read(message)
    assert found.kind is Kind.COMPLETION


@pytest.mark.parametrize("status", [401, 404, 429, 502, 503, 529])
def test_other_statuses_are_no_overflows(status: int):
    body = {"message": "This model's maximum context length is 8192 tokens. However, you requested 9001 tokens."}
    assert read_overflow(status, orjson.dumps(body)) is None


def test_an_answer_of_200_and_a_gateways_metadata_may_hold_the_error():
    error = {"message": "prompt is too long: 5000 tokens > 4096 maximum"}
    for answer in ({"error": error}, {"type": "error", **error}, {"error": error["message"]}):
        found = read_overflow(200, orjson.dumps(answer))
        assert (found.limit, found.requested) == (4096, 5000)
    raw = '{"error":{"message":"prompt is too long: 5000 tokens > 4096 maximum"}}'
    found = _read("Provider returned error", metadata={"raw": raw})
    assert (found.limit, found.requested) == (4096, 5000)
    found = read_overflow(
        422, orjson.dumps({"detail": [{"msg": "Input is too long for requested model.", "input": "x"}]})
    )
    assert found is not None


def test_every_413_is_one_of_size_and_an_empty_400_may_be():
    for body in (b"", b"<html>413 Request Entity Too Large</html>", b'{"error":{"message":"no"}}'):
        found = read_overflow(413, body)
        assert found.kind is Kind.SIZE
    assert read_overflow(400, b"") == Overflow(Kind.SIZE)
    assert read_overflow(422, b"") is None
    assert read_overflow(500, b"") is None
    found = _read("Request too large on tokens per minute (TPM): Limit 6000, Requested 9001", 413)
    assert (found.kind, found.limit, found.requested, found.unit) == (Kind.SIZE, 6000, 9001, "tokens")


def test_what_a_completion_leaves_of_the_prompt_is_never_negative():
    found = _read("max_tokens must be at least 1, got -7584.")
    assert (found.kind, found.limit, found.excess_tokens) == (Kind.PROMPT, None, 7584)
    found = _read("maximum context length is 8192 tokens. You requested 900 tokens (9000 in the completion).")
    assert (found.requested, found.completion_tokens, found.prompt_tokens) == (900, 9000, None)


@pytest.mark.parametrize(
    "answer",
    [
        {"detail": {"error": {"message": "Input is too long: 9000 tokens, max context length is 8192 tokens"}}},
        {"detail": "Prompt length 9000 is greater than max_seq_len 8192"},
        {"errors": [{"message": "the number of input tokens 9000 cannot exceed the total tokens limit 8192"}]},
        {"error": {"error": {"message": "prompt is too long: 9000 tokens > 8192 maximum"}}},
        {"message": ["context length exceeded: 9000 > 8192"], "error": "Bad Request"},
        {
            "type": "response.failed",
            "response": {"error": {"message": "prompt is too long: 9000 tokens > 8192 maximum"}},
        },
    ],
)
def test_an_error_is_found_wherever_it_is_wrapped(answer: dict[str, object]):
    for status in (200, 400):
        found = read_overflow(status, orjson.dumps(answer))
        assert (found.limit, found.requested) == (8192, 9000)


def test_an_error_that_clients_would_lose_is_called_flat():
    found = read_overflow(400, b'{"object":"error","message":"The input (9 tokens) is longer than the context length"}')
    assert found.is_flat
    assert found.text == "The input (9 tokens) is longer than the context length"
    assert not _read("prompt is too long", code="context_length_exceeded").is_flat


_WORDS = (
    "context length|exceeds|tokens|limit|is|at least|prompt|input|too long|requested|(|)|>|+|:|[1, |max_tokens|n_ctx"
)
_NUMBERS = ["8192", "9,001", "1e9", "-5", "9" * 40, "\x00", "é"]
_words = st.lists(st.sampled_from([*_WORDS.split("|"), *_NUMBERS]), max_size=40).map(" ".join)


@given(text=_words, status=st.sampled_from([200, 400, 413, 422, 500]))
def test_whatever_is_said_numbers_are_sane(text: str, status: int):
    for body in (text.encode(), orjson.dumps({"error": {"message": text}}), orjson.dumps({"message": text})):
        found = read_overflow(status, body)
        for number in (found.limit, found.requested, found.completion_tokens, found.excess_tokens) if found else ():
            assert number is None or 0 <= number < 2 * 10**12


WORDS = string.ascii_letters.encode() + b"\xe4"
"""Bytes of words in the languages of refusals; 0xe4 begins the Chinese one."""


@given(body=st.binary(max_size=200) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(dump))
def test_garbage_is_no_overflow_of_a_prompt(body: bytes):
    """Only an empty response with status 400 counts: some servers send it for a body that is too large."""
    body = body.translate(None, WORDS)  # hypothesis also tries strings from the source
    for status in (200, 400, 422, 500):
        is_told = status == 400 and not body.strip()
        assert read_overflow(status, body) == (Overflow(Kind.SIZE) if is_told else None)


@pytest.mark.parametrize("n_ctx", ["0", "-1", "true", "1" + "0" * 30, "1.5"])
def test_a_window_that_is_none_is_not_told(n_ctx: str):
    """A server may send anything, and what is learned from it lasts."""
    said = "the request exceeds the available context size"
    found = read_overflow(400, f'{{"error":{{"message":"{said}","n_ctx":{n_ctx},"n_prompt_tokens":9000}}}}'.encode())
    assert found.limit is None
    zero = read_overflow(400, b"This model's maximum context length is 0 tokens.")
    assert zero.limit is None


@pytest.mark.parametrize("before", [1900, MAX_TEXT_CHARS - 21, MAX_TEXT_CHARS - 1, MAX_TEXT_CHARS, 60_000])
def test_of_a_long_text_the_beginning_is_read_up_to_what_it_quotes(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the quote begins. No more is looked at, because searching all takes time on the event loop."""
    searched: list[int] = []

    class Noting:
        def split(self, text: str, maxsplit: int) -> list[str]:
            searched.append(len(text))
            return pattern.split(text, maxsplit=maxsplit)

    pattern = overflow_module._QUOTED
    monkeypatch.setattr(overflow_module, "_QUOTED", Noting())
    told = "maximum context length is 8192 tokens".ljust(before, ".")
    quoting = told + "'input_value'   =   'you" + "r" * 60_000
    found = read_overflow(400, orjson.dumps({"error": {"message": quoting}}))
    assert found is not None
    assert found.text == told[:MAX_TEXT_CHARS]
    assert max(searched) < 2 * MAX_TEXT_CHARS


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", (None, None, None, None, None)),
        ("limit: 184915 + 20000 > 204648", (204_648, 204_915, 184_915, 20_000, None)),
        ("requested 4120 tokens (3120 in the messages, 1000 in the completion)", (None, 4120, 3120, 1000, None)),
        ("your prompt contains at least 8193 input tokens", (None, 8193, 8193, None, None)),
        ("prompt too long; exceeded max context length by 100918 tokens", (None, None, None, None, 100_918)),
        ("9,001 tokens of 8_192", (8192, 9001, None, None, None)),
        ("300K tokens > 256K maximum", (None, None, None, None, None)),
        ("maximum context length is 0 tokens", (None, None, None, None, None)),
        (f"maximum context length is {MAX_NUMBER} tokens", (None, None, None, None, None)),
    ],
)  # fmt: skip
def test_what_is_told_is_read_and_nothing_else(text: str, numbers: tuple[int | None, ...]) -> None:
    assert read_numbers(text) == Numbers(*numbers)


PLANT = "maximum context length is 2048 tokens"


def refuse(message: str) -> Overflow:
    overflow = read_overflow(400, orjson.dumps({"error": {"message": message}}))
    assert overflow is not None
    return overflow


def say(text: str, **members: object) -> bytes:
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **members})


def test_a_servers_own_words_are_no_quote_and_what_cannot_be_read_is() -> None:
    """Even if the request talks about context windows, as long as it has none of the numbers that are used."""
    overflow = refuse("This model's maximum context length is 32768 tokens. However, you requested 40001 tokens.")

    assert find_quotes(overflow, say("Why is the maximum context length exceeded? It was 8192, 327680 or 132768.")) == 0
    assert find_quotes(refuse(PLANT), b'{"x":"\xff\xfe"}') is Quoted.WORDS


SERVERS: list[Callable[[str], str]] = [
    lambda said: f"Only user and tool roles are supported, got {said}.",
    lambda said: f"invalid role {said!r}",
    lambda said: f"invalid role {orjson.dumps(said).decode()}",
    lambda said: f"invalid role {html.escape(said)}",
    lambda said: f"no such model: {quote(said)} (maximum context length is 2048 tokens)",
    lambda said: said.upper(),
    lambda said: " ".join(said.split()),
]


@pytest.mark.parametrize(
    "said", [PLANT, f"x\n{PLANT}", f'a "b" <c>\t{PLANT}', f"é {PLANT}\\n", "maximum   context\nlength is 2048 tokens"]
)
@pytest.mark.parametrize("written", ["plain", "escaped", "surrogate", "nan"])
def test_words_are_known_however_client_and_server_write_them(said: str, written: str) -> None:
    """Escapes, white space, quotation marks and case do not count. A body that few decoders accept is read."""
    body = say(said)
    if written != "plain":
        escaped = "".join(f"\\u{ord(char):04x}" for char in said).encode()
        body = body.replace(orjson.dumps(said)[1:-1], escaped)
    if written == "surrogate":
        body = body.replace(b'"model"', b'"x":"\\ud800","model"')
    if written == "nan":
        body = body.replace(b'"model"', b'"x":NaN,"model"')

    for server in SERVERS:
        overflow = read_overflow(400, orjson.dumps({"error": {"message": server(said)}}))
        assert overflow is None or find_quotes(overflow, body) is Quoted.WORDS, server(said)


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


@given(st.integers(0, 3 * OVERLAP_CHARS))
def test_words_are_found_where_a_long_body_is_cut(before: int) -> None:
    """The overlap of two pieces is longer than any text that is searched for."""
    filler = "x" * (PIECE_CHARS - before)

    assert find_quotes(refuse(PLANT), say(f"{filler} {PLANT}")) is Quoted.WORDS


@given(st.text(max_size=200), st.binary(max_size=200))
def test_whatever_comes_is_judged(text: str, body: bytes) -> None:
    overflow = Overflow(refuse(PLANT).kind, text, limit=2048, requested=3000)

    assert find_quotes(overflow, body) in set(Quoted)


def test_each_row_matches_its_own_sample_and_no_row_above_takes_it_for_something_else() -> None:
    """The first row that matches decides what a text is about. Every number that a row can read is in its sample."""
    rows = (*MEANINGS, *FIGURES)
    assert [wording for wording in rows if not (wording.server and wording.pattern.search(wording.sample))] == []
    for wording in MEANINGS:
        first = next(row for row in MEANINGS if row.pattern.search(wording.sample))
        assert first.kind is wording.kind, wording
    for wording in FIGURES:
        match = wording.pattern.search(wording.sample)
        assert match.groupdict()
        assert set(match.groupdict().values()) <= set(re.findall(r"\d+", wording.sample))


def test_no_pattern_repeats_without_a_bound() -> None:
    """A hostile text can have any length."""
    bare = [re.sub(r"\\.|\[[^\]]*\]", "", wording.pattern.pattern) for wording in (*MEANINGS, *FIGURES)]
    assert [pattern for pattern in bare if re.search(r"[^}][*+]|\{\d+,\}", pattern)] == []
