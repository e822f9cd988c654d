"""Asks a server's own tokenizer how it counts: the samples of scripts.py, what its chat template adds, and a prompt.

Law: what a server answers is bounded, and never raises. A server that does not count all samples has said nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from trimtab.proxy.wire.json import try_decode
from trimtab.rules.conversation import Conversation, CountTokens
from trimtab.rules.tokens.families import Reading
from trimtab.rules.tokens.scripts import (
    EVEN,
    SAMPLES,
    Chars,
    Measured,
    Weights,
    add_chars,
    count_chars,
    count_kinds,
    find_kind,
)

Post = Callable[[str, bytes], Awaitable[bytes]]
"""Sends a body to a path of the server. Returns the answer's body; empty if it failed."""
TOKENIZE, TEMPLATE = "/tokenize", "/apply-template"
"""Source: the documentation of llama.cpp's server, of vLLM (/tokenize only, which takes messages, too) and of SGLang
(/tokenize, texts only), as TGI."""
_MOST_TOKENS = 8  # Most tokens for one byte of a sample. Chosen: no vocabulary has more than one; more is no answer.
_LEAST_TOKENS = 1 / 16
"""For one byte of a sample. Chosen: the largest vocabularies have three times as many; fewer count something else."""
_MOST_ADDED = 512  # By a chat template. Chosen: above Llama's date and Qwen's preamble; more is no template's.
WAIT_SECONDS = 0.5  # For the count of a prompt, whose request waits. Chosen: local servers take milliseconds.
_MOST_PROMPT_CHARS = 16_384  # Chosen: enough to show its language; a server counts it in milliseconds.
_WORD = "a"
_SHORT = [{"role": "user", "content": _WORD}]
_LED = [{"role": "system", "content": _WORD}, *_SHORT]
_LONG = [*_LED, {"role": "assistant", "content": _WORD}, *_SHORT]
_VALUE = "lighthouse"
_CALL = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": f'{{"text": "{_VALUE}"}}'}}
_CALLED = [
    *_SHORT,
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": _WORD},
]
_TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}]


async def ask_reading(post: Post, model: str, told: Reading) -> Reading:
    """How the server reads prompts, given what is known of that; as it was if its tokenizer does not say."""
    if told.drops_calls and _VALUE in await _write_prompt(post, model, _CALLED, _TOOLS):
        told = told._replace(drops_calls=False)  # some builds of llama.cpp then write calls as text
    samples = []
    for sample in SAMPLES:
        tokens = await _count_text(post, model, sample)
        if not _LEAST_TOKENS <= tokens / len(sample.encode()) <= _MOST_TOKENS:
            return told
        samples.append(tokens)
    word = await _count_text(post, model, _WORD)
    short, led, long = [await _count_messages(post, model, messages) for messages in (_SHORT, _LED, _LONG)]
    frame = (long - led) / 2 - word
    priming = round(led - 2 * (frame + word))
    unspoken = round(short - priming - frame - word)
    # A template may refuse system messages, or not be there: then the usual frame counts.
    if not (word > 0 and 0 < led < long and min(frame, priming, unspoken) >= 0 and max(long, short) <= _MOST_ADDED):
        return told._replace(samples=tuple(samples), priming=_USUAL[0], frame=_USUAL[1], unspoken=0)
    return told._replace(samples=tuple(samples), priming=priming, frame=frame, unspoken=unspoken)


class Prompt(NamedTuple):
    """A prompt, and how it is counted. weights: of `count`."""

    sent: Conversation
    count: CountTokens
    weights: Weights = EVEN

    @property
    def is_first(self) -> bool:
        """Whether nothing in it is an answer, as in the first prompt of a session."""
        return all(message.role != "assistant" for message in self.sent.messages)

    def find_kind(self, *, drops_calls: bool) -> int:
        chars = count_kinds(self.sent, drops_calls=drops_calls)
        return find_kind(self.sent.tokens - self.weights.weigh(chars), chars)


def _sample(prompt: Prompt) -> tuple[str, float, Chars]:
    """A prompt's newest texts, their tokens as we count them without weights, and their characters."""
    texts, left = [], _MOST_PROMPT_CHARS
    for text in (text for message in reversed(prompt.sent.messages) for text in reversed(message.texts)):
        texts.append(text[:left])
        left -= len(text)
        if left <= 0:
            break
    chars = add_chars(map(count_chars, texts))
    return "\n".join(texts), sum(map(prompt.count, texts)) - prompt.weights.weigh(chars), chars


async def measure_prompt(post: Post, model: str, prompt: Prompt) -> Measured | None:
    """What the server's count of a prompt's newest texts shows, beside ours; None if it does not say in time."""
    text, ours, chars = await asyncio.to_thread(_sample, prompt)
    theirs = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(WAIT_SECONDS):
            theirs = await _count_text(post, model, text) if ours >= 1 else 0
    if not _LEAST_TOKENS <= theirs / max(len(text.encode("utf-8", "surrogatepass")), 1) <= _MOST_TOKENS:
        return None
    own = Chars(*(each / ours for each in chars))
    return Measured(find_kind(ours, chars), theirs / ours, own, is_settled=False)


_USUAL = 3, 4.0  # Priming and frame of most templates, as messages.py counts them


async def _count_text(post: Post, model: str, text: str, *, is_prompt: bool = False) -> int:
    """A text's tokens; 0 if the server does not say. `is_prompt`: with what stands around a whole prompt."""
    # llama.cpp reads `content`, `add_special`, vLLM and SGLang `model`, `prompt`, `add_special_tokens`, TGI `inputs`.
    texts = dict.fromkeys(("content", "prompt", "inputs"), text.encode("utf-8", "replace").decode())
    asked = {"model": model, **texts, "add_special": is_prompt, "add_special_tokens": is_prompt}
    return _read_count(await post(TOKENIZE, orjson.dumps(asked)))


async def _count_messages(post: Post, model: str, messages: list[dict[str, str]]) -> int:
    """The tokens of a prompt of these messages; 0 if the server does not say."""
    if prompt := await _write_prompt(post, model, messages):
        return await _count_text(post, model, prompt, is_prompt=True)
    asked = {"model": model, "messages": messages, "add_generation_prompt": True}
    return _read_count(await post(TOKENIZE, orjson.dumps(asked)))


async def _write_prompt(post: Post, model: str, messages: Sequence[Any], tools: Sequence[Any] = ()) -> str:
    """A prompt as the chat template writes it; empty if the server does not say."""
    asked = {"model": model, "messages": messages, "add_generation_prompt": True} | ({"tools": tools} if tools else {})
    written = try_decode(await post(TEMPLATE, orjson.dumps(asked)))
    prompt = written.get("prompt") if isinstance(written, dict) else None
    return prompt if isinstance(prompt, str) else ""


def _read_count(body: bytes) -> int:
    answer: Any = try_decode(body)
    tokens = answer.get("tokens") if isinstance(answer, dict) else answer  # TGI: the list itself
    return len(tokens) if isinstance(tokens, list) else 0
