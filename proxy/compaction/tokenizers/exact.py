"""Counting tokens: tiktoken's vocabularies from the wheel's own rank files, a heuristic where they cannot be had.

Law: a count is a function of the text. No download, no global state, no text so long that the tokenizer chokes.
"""

import lzma
import re
import sys
from collections.abc import Callable, Iterator
from copy import copy
from importlib import resources
from itertools import accumulate, pairwise

import tiktoken

from proxy.compaction.tokenizers.patterns import PUBLISHED, join_pattern
from proxy.lru import BytesLRU
from rules.conversation import CountTokens

PIECE_CHARS = 32_768
"""A whitespace run of 999,999 characters panics tiktoken 0.14, and long runs of letters cost more than their length."""
MEMO_MIN_CHARS = 64
"""Counting a shorter text costs no more than looking it up."""
UNUSED_SHARE = 0.25
"""Of what is remembered, for texts that were counted once."""
MEMO_BYTES = 8 * 1024 * 1024
LARGE_CHARS, LARGE_MEMO_BYTES = 4 * 1024 * 1024, 40 * 1024 * 1024
"""The rules ask for a result's count several times; counting 20 MB takes seconds. One or two of them are remembered."""

VOCABULARIES = tuple(PUBLISHED)
# Source: openai/tiktoken, tiktoken_ext/openai_public.py (MIT).
_SPECIAL = {
    "o200k_base": {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018},
    "cl100k_base": {
        "<|endoftext|>": 100_257,
        "<|fim_prefix|>": 100_258,
        "<|fim_middle|>": 100_259,
        "<|fim_suffix|>": 100_260,
        "<|endofprompt|>": 100_276,
    },
}

_AFTER_WORD = r"[0-9\s -&(-/:-@\[-`{-~\u2010-\u2027\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]"
_BOUNDARY = re.compile(
    rf"(?:[^\W\d_](?={_AFTER_WORD})|[0-9](?=[^\W\d_]|[\s -/:-@\[-`{{-~])|\n(?=[^\s/]))", flags=re.UNICODE
)
"""Where both vocabularies begin a new word, whatever stands further on: behind letters where no letter, accent or
apostrophe follows; behind digits where no digit does; behind a line break where no blank and no slash does."""
SEARCHED_CHARS = 256
"""How far back a boundary is looked for at first; the piece's second half comes next."""

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


def load_encoding(name: str, *, is_published: bool = False) -> tiktoken.Encoding:
    """One of tiktoken's encodings, from the rank file beside this module. Raises VocabularyError.

    With the pattern as it `is_published`, it gives the same tokens in more time: for comparison.
    """
    try:
        packed = resources.files("proxy.compaction.tokenizers").joinpath("vocabulary", f"{name}.xz").read_bytes()
    except OSError as error:
        raise VocabularyError(str(error)) from error
    pattern = "|".join(PUBLISHED[name]) if is_published else join_pattern(name)
    return tiktoken.Encoding(
        name=name, pat_str=pattern, mergeable_ranks=read_ranks(packed), special_tokens=_SPECIAL[name]
    )


def split_text(text: str) -> Iterator[str]:
    """Pieces of at most PIECE_CHARS, cut where no token joins them; anywhere in a run that has no such place."""
    start = 0
    while len(text) - start > PIECE_CHARS:
        stop = start + PIECE_CHARS
        at = _find_boundary(text, stop - SEARCHED_CHARS, stop) or _find_boundary(text, start + PIECE_CHARS // 2, stop)
        yield text[start : at or stop]
        start = at or stop
    yield text[start:] if start else text


def _find_boundary(text: str, start: int, stop: int) -> int:
    """The last boundary in (start, stop]; 0 where there is none."""
    for found in reversed(list(_BOUNDARY.finditer(text, start, stop + 1))):
        at = found.end()
        if not (_is_numeral(text[at - 1]) or _is_numeral(text[at])):
            return at
    return 0


def _is_numeral(char: str) -> bool:
    """Whether it is a numeral but no digit: `re` takes a half or a Roman two for a letter, tiktoken for a number."""
    return char.isnumeric() and not char.isalpha() and not char.isdecimal()


def count_by_heuristic(text: str) -> int:
    """Tokens by characters: wide ones by 1.4, others by 4. For when there is no vocabulary."""
    wide = sum(len(_WIDE.findall(text, start, start + PIECE_CHARS)) for start in range(0, len(text), PIECE_CHARS))
    return round(wide / _WIDE_CHARS_PER_TOKEN + (len(text) - wide) / _CHARS_PER_TOKEN)


def count_pieces(encoding: tiktoken.Encoding) -> CountTokens:
    """Exact counts by an encoding, for texts that are not too long; the interpreter's lock is free meanwhile."""
    encode = encoding.encode_ordinary
    return lambda text: len(encode(text))


class CountMemos:
    """The counts of texts that were counted before; the longest ones apart, of which one would drive out all others.

    `scale` is what they have of the usual bounds.

    What is remembered goes by the text itself: Python's hash is keyed, and texts whose hashes meet are compared, so
    that nobody can plant a wrong count.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.usual: BytesLRU[str, int] = BytesLRU(
            int(scale * MEMO_BYTES), lambda text, _: sys.getsizeof(text), unused_share=UNUSED_SHARE
        )
        self.large: BytesLRU[str, int] = BytesLRU(int(scale * LARGE_MEMO_BYTES), lambda text, _: sys.getsizeof(text))

    def share(self) -> "CountMemos":
        """The same for another tenant: nothing is known in it yet, and the bounds are those of all shares together."""
        made = copy(self)
        made.usual, made.large = self.usual.share(), self.large.share()
        return made

    def close(self) -> None:
        """Forget everything, and keep nothing from now on."""
        self.usual.close()
        self.large.close()


def make_counter(count_piece: Callable[[str], int], memos: CountMemos | None = None) -> CountTokens:
    """Counts of texts of any length, remembered in the `memos`, in its own without. Thread-safe."""
    memos = memos or CountMemos()
    usual, large = memos.usual, memos.large

    def count(text: str) -> int:
        if len(text) < MEMO_MIN_CHARS:
            return count_piece(text)
        known = usual if len(text) < LARGE_CHARS else large
        tokens = known.get(text)
        if tokens is None:
            tokens = known[text] = sum(map(count_piece, split_text(text)))
        return tokens

    return count
