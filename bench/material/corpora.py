"""The texts that are counted: recorded ones, or made-up ones if the recordings are absent.

Law: no text appears twice, so that nothing is counted that was counted before.
"""

import random
from collections.abc import Iterator, Sequence

import orjson

from bench.material.transcript import build_body
from bench.material.workload import RECORDED, load_sessions

TOOL_OUTPUTS = RECORDED.with_name("tool_outputs")
_HARD_BYTES = 10_000_000
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_HARD_SEED = 17


def load_message_texts() -> list[str]:
    """The texts of all messages of the recorded sessions, each once; long sessions repeat the texts of others."""
    sessions = load_sessions([])
    texts = {text for session in sessions for raw in session.messages for text in _read_texts(raw)}
    return sorted(texts)


def load_tool_outputs() -> list[str]:
    """Recorded tool outputs, 10 KB to 2 MB each; one made-up output if they are absent."""
    files = sorted(file for file in TOOL_OUTPUTS.glob("*") if file.suffix != ".jsonl")
    made = orjson.loads(build_body(3_000_000))["messages"]
    return [file.read_text("utf-8", "replace") for file in files] or ["\n".join(map(str, made))]


def make_hard_texts() -> dict[str, str]:
    """Texts that are hard for tokenizers, by a description."""
    dice = random.Random(_HARD_SEED)  # noqa: S311 - no secret: the same text in every run
    common = range(0x4E00, 0x9FFF)
    return {
        "1,000,000 blanks": " " * 1_000_000,
        "'a' * 10,000,000": "a" * _HARD_BYTES,
        "10 MB of random letters": "".join(dice.choices(_LETTERS, k=_HARD_BYTES)),
        "1 MB of Chinese characters": "".join(map(chr, dice.choices(common, k=333_333))),
        "1 MB with lone surrogates": "a line with one \ud800 in it\n" * 36_000,
        "'<|endoftext|>' * 80,000": "<|endoftext|>" * 80_000,
        "'=' * 1,000,000": "=" * 1_000_000,
    }


def batch(texts: Sequence[str], total_chars: int) -> Iterator[list[str]]:
    """The texts in batches of at least `total_chars`, so that two ways of counting can take turns."""
    taken: list[str] = []
    chars = 0
    for text in texts:
        taken.append(text)
        chars += len(text)
        if chars >= total_chars:
            yield taken
            taken, chars = [], 0
    if taken:
        yield taken


def count_bytes(texts: Sequence[str]) -> int:
    """Their size in UTF-8."""
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def _read_texts(raw: bytes) -> Iterator[str]:
    content = orjson.loads(raw).get("content")
    for part in content if isinstance(content, list) else [{"text": content}]:
        if isinstance(text := part.get("text"), str) and text:
            yield text
