"""Counting tokens: tiktoken's o200k_base from the wheel's own rank file, a heuristic where that cannot be had.

Law: a count is a function of the text. No download, no global state, no text so long that the tokenizer chokes.
"""

import lzma
import re
from collections.abc import Iterator
from importlib import resources
from itertools import accumulate, pairwise

import tiktoken

from proxy.lru import BytesLRU
from rules.conversation import CountTokens

PIECE_CHARS = 32_768
"""A whitespace run of 999,999 characters panics tiktoken 0.14, and long runs of letters cost more than their length."""
MEMO_MIN_CHARS = 64
"""Counting a shorter text costs no more than looking it up."""
MEMO_BYTES = 16 * 1024 * 1024
CHARACTER_BYTES = 2
"""Of a text in memory, roughly: one to four by its widest character."""

# Source: openai/tiktoken, tiktoken_ext/openai_public.py, o200k_base (MIT).
_O200K_PATTERN = "|".join(  # noqa: FLY002 - one alternative a line reads better
    [
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ]
)
_O200K_SPECIAL = {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018}

_WIDE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
_WIDE_CHARS_PER_TOKEN = 1.4
"""Chinese, Japanese and Korean characters. Source: fitted on mixed corpora, 19 % mean error."""
_CHARS_PER_TOKEN = 4


class VocabularyError(RuntimeError):
    """The packed vocabulary is missing or damaged."""


def read_ranks(packed: bytes) -> dict[bytes, int]:
    """Token bytes to rank, from the packed form (see scripts/pack_vocabulary.py). Raises VocabularyError."""
    try:
        data = lzma.decompress(packed)
    except lzma.LZMAError as error:
        raise VocabularyError(str(error)) from error
    count = _count_tokens_in(data)
    ends = accumulate(data[:count], initial=count)
    return {data[start:stop]: rank for rank, (start, stop) in enumerate(pairwise(ends))}


def _count_tokens_in(data: bytes) -> int:
    """How many length bytes stand at the front: as many as make the lengths add up to the rest."""
    total = 0
    for index, length in enumerate(data):
        total += length
        if index + 1 + total == len(data):
            return index + 1
    message = "the packed vocabulary is cut short"
    raise VocabularyError(message)


def load_o200k() -> tiktoken.Encoding:
    """Tiktoken's o200k_base, from the rank file beside this module. Raises VocabularyError."""
    try:
        packed = resources.files("proxy").joinpath("vocabulary", "o200k_base.xz").read_bytes()
    except OSError as error:
        raise VocabularyError(str(error)) from error
    return tiktoken.Encoding(
        name="o200k_base",
        pat_str=_O200K_PATTERN,
        mergeable_ranks=read_ranks(packed),
        special_tokens=_O200K_SPECIAL,
    )


def split_text(text: str) -> Iterator[str]:
    """Pieces of at most PIECE_CHARS, cut where tokens seldom join: behind a line break, else before a blank."""
    start = 0
    while len(text) - start > PIECE_CHARS:
        stop = start + PIECE_CHARS
        at = text.rfind("\n", start + PIECE_CHARS // 2, stop - 1) + 1
        # A token may take in the line break with what follows it.
        if at <= start or text[at].isspace() or text[at] == "/":
            at = text.rfind(" ", start + PIECE_CHARS // 2, stop)
        at = at if at > start else stop
        yield text[start:at]
        start = at
    yield text[start:] if start else text


def count_by_heuristic(text: str) -> int:
    """Tokens by characters: wide ones by 1.4, others by 4. For when there is no vocabulary."""
    wide = len(_WIDE.findall(text))
    return round(wide / _WIDE_CHARS_PER_TOKEN + (len(text) - wide) / _CHARS_PER_TOKEN)


def make_counter(encoding: tiktoken.Encoding) -> CountTokens:
    """Exact counts by an encoding, remembered. Thread-safe; releases the interpreter's lock while it encodes."""
    encode = encoding.encode_ordinary
    memo: BytesLRU[str, int] = BytesLRU(MEMO_BYTES, lambda text, _: len(text) * CHARACTER_BYTES)

    def count(text: str) -> int:
        if len(text) < MEMO_MIN_CHARS:
            return len(encode(text))
        tokens = memo.get(text)
        if tokens is None:
            tokens = memo[text] = sum(len(encode(piece)) for piece in split_text(text))
        return tokens

    return count
