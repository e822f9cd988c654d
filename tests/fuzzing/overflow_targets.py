"""Fuzzes refusals of upstreams: texts of real servers, mixed with other text.

Laws: nothing raises. Numbers are not negative and not larger than any window. A rate limit is not an overflow. The
lesson from a refusal makes the next attempt shorter.
"""

from typing import Any

from fuzzing.choices import NUMBERS, Choices, dump

from trimtab.proxy.models.discovery import MAX_WINDOW_TOKENS
from trimtab.proxy.models.lessons import Sent, draw_lesson
from trimtab.proxy.models.records import MAX_RATIO
from trimtab.proxy.wire.answering import PROMPT_TOO_LONG, ErrorText
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.overflow import Overflow, read_overflow
from trimtab.rules.policy import Policy

MAX_NUMBER = 10**12
STATUSES = (400, 200, 413, 422, 500, 429, 404, 0, -1, 10**6)
_RATES = (
    "Rate limit reached for m: limit {n}, used {n}. ", "Too many requests. ", "Please try again in {n}s. ",
    "You exceeded your quota. ", "{n} tokens per minute. ", "Limit {n} TPM. ",
)  # fmt: skip
_PIECES = (
    "This model's maximum context length is {n} tokens. ",
    "However, you requested {n} tokens ({n} in the messages, {n} in the completion). ",
    "prompt is too long: {n} tokens > {n} maximum. ", "the request exceeds the available context size. ",
    "input length {n} exceeds {n} ", "Please reduce the length of the messages. ", "at least {n} tokens ",
    "`inputs` tokens + `max_new_tokens` must be <= {n}. Given: {n} ",
    "string too long. Expected a string with maximum length {n}, but got {n} ", "max_tokens must be at most {n} ",
    "{n} characters ", "Request too large for m ", "payload too large ", "image ", "context window ",
    "tokens exceed ", "limit is {n} ", "input: '", "{n}/{n} ", "{n} + {n} > {n} ",
    "range of input length should be [1, {n}] ", "context size has been exceeded", "max_prompt_tokens ",
    "input tokens ", "too long ", "larger than ", "reduce ", "prompt ", "token limit ", "_", "(", ",", "-", "~", "\n",
    " ", "x",
)  # fmt: skip
_NUMBERS = (
    "4096",
    "0",
    "-1",
    "131,072",
    "128k",
    "1.5",
    "1e9",
    "00",
    "99999999999999999999999",
    "٣",
    "²",
    "8192tokens",
    "1,2,3,4",
    ",",
    "9" * 400,
)
_CODES = (
    "context_length_exceeded",
    "rate_limit_exceeded",
    "invalid_request_error",
    None,
    400,
    "",
    ["context_length_exceeded"],
)


def fuzz_overflow(data: bytes) -> None:
    """Read one error response."""
    choices = Choices(data)
    status = choices.pick(STATUSES)
    kind = choices.below(6)
    if kind == 1:
        _check(read_overflow(status, choices.rest()))
        return
    if kind == 2:
        text = "".join(_fill(choices, _RATES) for _ in range(1 + choices.below(3)))
        body = _wrap(choices, text, "rate_limit_exceeded", {})
        assert status == 413 or read_overflow(status, body) is None, "a rate limit is taken for an overflow"
        return
    text = "".join(_fill(choices, _PIECES) for _ in range(choices.below(8))) * choices.pick((1, 1, 1, 1, 50, 400))
    members = {
        choices.pick(("n_ctx", "n_prompt_tokens", "metadata", "param")): choices.value()
        for _ in range(choices.below(3))
    }
    if choices.happens(64):
        members |= {"n_ctx": choices.pick(NUMBERS), "n_prompt_tokens": choices.pick(NUMBERS)}
    body = _wrap(choices, text, choices.pick(_CODES), members)
    if choices.happens(32):
        body = choices.mutate(body)
    found = read_overflow(status, body)
    _check(found)
    assert found == read_overflow(status, body), "two readings of one answer"
    if found is not None:
        _check_lesson(found, choices)


def fill_piece(choices: Choices) -> str:
    """A phrase that servers use about the context window, with numbers."""
    return _fill(choices, _PIECES)


def write_refusal(choices: Choices) -> bytes:
    """The body of an error that may be about the context window, and may contain numbers."""
    text = "".join(_fill(choices, _PIECES) for _ in range(1 + choices.below(4)))
    return _wrap(choices, text, choices.pick(_CODES), {})


def _fill(choices: Choices, pieces: tuple[str, ...]) -> str:
    """A phrase with its placeholders replaced by numbers."""
    piece = choices.pick(pieces) if not choices.happens(16) else choices.text(8).replace("{", "").replace("}", "")
    while "{n}" in piece:
        number = choices.pick(_NUMBERS) if choices.happens(64) else str(choices.below(70_000))
        piece = piece.replace("{n}", number, 1)
    return piece


def _wrap(choices: Choices, text: str, code: Any, members: dict[str, Any]) -> bytes:
    """The message in one of the forms in which servers send errors."""
    error = {"message": text, "type": code, "code": code, **members}
    forms: tuple[Any, ...] = (
        {"error": error},
        [{"error": error}],
        {"error": text},
        {"object": "error", **error},
        {"detail": [{"msg": text, "input": choices.value()}]},
        {"error": {"message": "no", "metadata": {"raw": text}, **members}},
        text,
        {"type": "error", "error": error},
    )
    number = choices.below(9)
    return text.encode("utf-8", "replace") if number == 8 else dump(forms[number], choices)


def _check_lesson(found: Overflow, choices: Choices) -> None:
    """A retry sends less than what was refused, whatever the refusal says."""
    policy = Policy(context_window=choices.pick((4096, 1024, 128_000)), token_ratio=choices.pick((1.0, 0.3, 5.9)))
    prompt_tokens = (1, 7, 300, 4000, 10**6)[choices.below(5)]
    sent = Sent(prompt_tokens, choices.pick((None, 0, 1, 10**6, 10**30)), is_text=choices.happens(128))
    lesson = draw_lesson(found, policy, sent)
    if lesson is None:
        return
    assert lesson.apply(policy).limit_tokens(sent.max_tokens) < prompt_tokens, "a retry may be as large as before"
    assert lesson.window_tokens is None or 256 <= lesson.window_tokens <= MAX_WINDOW_TOKENS, "a window out of bounds"
    assert lesson.ratio is None or 0 < lesson.ratio <= MAX_RATIO, "a ratio out of bounds"


def _check(found: Overflow | None) -> None:
    if found is None:
        return
    for number in (found.limit, found.requested, found.prompt_tokens, found.completion_tokens, found.excess_tokens):
        assert number is None or type(number) is int, "a value that is not an integer"
        assert number is None or 0 <= number <= MAX_NUMBER, "a number out of bounds"
    assert found.limit != 0, "a window of nothing"
    written = CHAT.write_error(ErrorText(found.text, PROMPT_TOO_LONG), as_event=False)
    assert written.startswith(b'{"error":{"message":'), "an error that is not in OpenAI's form"
