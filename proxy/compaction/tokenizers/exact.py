"""Counts tokens with tiktoken and rank files from the wheel, or by a heuristic if these are missing.

Law: a count is a function of the text. No download, no global state. Texts of any length are counted.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from importlib import resources

import msgspec
import tiktoken

from trimtab.proxy.lru import BytesLRU
from trimtab.rules.conversation import CountTokens
from trimtab.rules.text.late import compile_late

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_decode_tokens = msgspec.msgpack.Decoder(list[bytes]).decode

PIECE_CHARS = 32_768
"""Longer texts are counted in pieces. Chosen: a whitespace run of 999,999 characters makes tiktoken 0.14 panic, and
long runs of letters take more than linear time."""
MEMO_MIN_CHARS = 64
"""Shorter texts are not remembered. Chosen: counting them costs no more than a lookup."""
UNUSED_SHARE = 0.25
"""Share of the memo for texts that were counted only once. Chosen: such texts are evicted soon."""
MEMO_BYTES = 8 * 1024 * 1024  # chosen: most texts are known by their messages already
LARGE_CHARS, LARGE_MEMO_BYTES = 4 * 1024 * 1024, 40 * 1024 * 1024
"""Very long texts have a memo of their own, for one or two of them. Chosen: the rules count a result several times, and
counting 20 MB takes seconds."""

# Source: openai/tiktoken, tiktoken_ext/openai_public.py (MIT). One alternative a line.
PUBLISHED = {
    "o200k_base": (
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ),
    "cl100k_base": (
        r"""'(?i:[sdmt]|ll|ve|re)""",
        r"""[^\r\n\p{L}\p{N}]?+\p{L}++""",
        r"""\p{N}{1,3}+""",
        r""" ?[^\s\p{L}\p{N}]++[\r\n]*+""",
        r"""\s++$""",
        r"""\s*[\r\n]""",
        r"""\s+(?!\S)""",
        r"""\s""",
    ),
}
"""The patterns by which tiktoken's vocabularies split a text into words."""
_POSSESSIVE = compile_late(r"([?+*]|\{\d,\d\})\+")
_BLANKS = 2
"""Number of alternatives at the end for runs of white space; one of them looks ahead."""


def join_pattern(vocabulary: str) -> str:
    r"""The pattern of a vocabulary, regrouped so that tiktoken runs it faster. It gives the same words for every text.

    tiktoken's engine, fancy-regex, compiles each alternative that an automaton can match to an automaton of its own,
    and tries them one by one at every word. One group of alternatives becomes a single automaton, which needs one pass
    and prefers the earlier alternative, too. An automaton cannot look ahead, as `(?!\S)` does, and has no possessive
    quantifiers. These are not needed here: what follows a quantifier can never begin with what it has matched, so
    backtracking finds no other match. Measured: 0.7 of the time for o200k_base, 0.45 for cl100k_base.
    """
    alternatives = PUBLISHED[vocabulary]
    words = _POSSESSIVE.sub(r"\1", "|".join(alternatives[:-_BLANKS]))
    return "|".join((f"(?:{words})", *alternatives[-_BLANKS:]))


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
_BOUNDARY = compile_late(rf"(?:[^\W\d_](?={_AFTER_WORD})|[0-9](?=[^\W\d_]|[\s -/:-@\[-`{{-~])|\n(?=[^\s/]))")
"""Matches the end of a word in both vocabularies, whatever comes later. That is: letters, if no letter, accent or
apostrophe follows; digits, if no digit follows; a line break, if no blank and no slash follows."""
SEARCHED_CHARS = 256
"""Characters before the end of a piece that are searched first for a boundary; then its second half is. Chosen: nearly
every text has a boundary in them."""

_WIDE = compile_late("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
_WIDE_CHARS_PER_TOKEN = 1.4
"""Chinese, Japanese and Korean characters for each token. Fitted on mixed corpora (bench.tokens.run), mean error 19
%."""
_CHARS_PER_TOKEN = 4  # the usual estimate for English text


class VocabularyError(RuntimeError):
    """The packed vocabulary is missing or damaged."""


def read_ranks(packed: bytes) -> dict[bytes, int]:
    """Unpack a vocabulary (see scripts/pack_vocabulary.py): token bytes to rank. Raises VocabularyError."""
    try:
        tokens = _decode_tokens(zstd.decompress(packed))
    except (zstd.ZstdError, msgspec.DecodeError) as error:
        raise VocabularyError(str(error)) from error
    return dict(zip(tokens, range(len(tokens)), strict=True))


def read_vocabulary(name: str) -> dict[bytes, int]:
    """Read the rank file beside this module. Raises VocabularyError."""
    try:
        packed = resources.files("trimtab.proxy.compaction").joinpath("vocabulary", f"{name}.zst").read_bytes()
    except OSError as error:
        raise VocabularyError(str(error)) from error
    return read_ranks(packed)


def load_encoding(name: str, ranks: dict[bytes, int] | None = None, *, is_published: bool = False) -> tiktoken.Encoding:
    """Load one of tiktoken's encodings. `ranks`: None to read them. Raises VocabularyError.

    is_published: use the published pattern, which gives the same tokens in more time; for comparison.
    """
    ranks = read_vocabulary(name) if ranks is None else ranks
    pattern = "|".join(PUBLISHED[name]) if is_published else join_pattern(name)
    encoding = tiktoken.Encoding(name=name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=_SPECIAL[name])
    encoding._mergeable_ranks = {}  # noqa: SLF001 - 22 MB; its engine has copied them, and nothing else here reads them
    return encoding


_BEFORE_BLANK = compile_late(r"(?<=\S)(?= )")  # No word of either vocabulary goes on behind such a place
_LONGEST_TOKEN_BYTES = 128


def count_by_part(name: str, ranks: Mapping[bytes, int], text: str) -> int:
    """Count a short text exactly, by an encoding of the tokens in it; no other token can decide how it is encoded.

    To make such an encoding takes some 5 ms, and to make one of all tokens 200.
    """
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # as tiktoken does
    part = dict[bytes, int]()
    for word in {word.encode() for word in _BEFORE_BLANK.split(text)}:
        stops = range(1, len(word) + 1)
        pieces = {word[start:stop] for stop in stops for start in range(max(stop - _LONGEST_TOKEN_BYTES, 0), stop)}
        part |= {piece: ranks[piece] for piece in pieces if piece in ranks}
    if not part:
        return 0
    encoding = tiktoken.Encoding(name=name, pat_str=join_pattern(name), mergeable_ranks=part, special_tokens={})
    return len(encoding.encode_ordinary(text))


def split_text(text: str) -> Iterator[str]:
    """Split into pieces of at most PIECE_CHARS at places that no token crosses; without such a place, anywhere."""
    start = 0
    while len(text) - start > PIECE_CHARS:
        stop = start + PIECE_CHARS
        at = _find_boundary(text, stop - SEARCHED_CHARS, stop) or _find_boundary(text, start + PIECE_CHARS // 2, stop)
        yield text[start : at or stop]
        start = at or stop
    yield text[start:] if start else text


def _find_boundary(text: str, start: int, stop: int) -> int:
    for found in reversed(list(_BOUNDARY.finditer(text, start, stop + 1))):
        at = found.end()
        if not (_is_numeral(text[at - 1]) or _is_numeral(text[at])):
            return at
    return 0


def _is_numeral(char: str) -> bool:
    """Whether a character is a numeral but not a digit: for `re` a half is a letter, for tiktoken a number."""
    return char.isnumeric() and not char.isalpha() and not char.isdecimal()


def count_by_heuristic(text: str) -> int:
    """Estimate tokens by characters: 1.4 wide ones or 4 others a token. Used if there is no vocabulary."""
    wide = sum(len(_WIDE.findall(text, start, start + PIECE_CHARS)) for start in range(0, len(text), PIECE_CHARS))
    return round(wide / _WIDE_CHARS_PER_TOKEN + (len(text) - wide) / _CHARS_PER_TOKEN)


def count_pieces(encoding: tiktoken.Encoding) -> CountTokens:
    """Exact counts by an encoding, for texts up to PIECE_CHARS. tiktoken releases the interpreter's lock meanwhile."""
    encode = encoding.encode_ordinary
    return lambda text: len(encode(text))


class CountMemos:
    """Remembered counts. Very long texts have a memo of their own, because one of them would evict all others.

    `scale`: the share of the usual bounds.

    The key is the text itself. Python's hash is keyed, and texts with equal hashes are compared, so nobody can plant a
    wrong count.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.usual: BytesLRU[str, int] = BytesLRU(
            MEMO_BYTES, lambda text, _: sys.getsizeof(text), unused_share=UNUSED_SHARE
        )
        self.large: BytesLRU[str, int] = BytesLRU(LARGE_MEMO_BYTES, lambda text, _: sys.getsizeof(text))
        self.scale(scale)

    def share(self) -> "CountMemos":
        made = copy(self)
        made.usual, made.large = self.usual.share(), self.large.share()
        return made

    def scale(self, scale: float) -> None:
        self.usual.scale(scale)
        self.large.scale(scale)

    def close(self) -> None:
        self.usual.close()
        self.large.close()


def make_counter(count_piece: Callable[[str], int], memos: CountMemos | None = None) -> CountTokens:
    """Make a counter for texts of any length, with these memos or its own. Thread-safe."""
    memos = memos or CountMemos()
    usual, large = memos.usual, memos.large

    def count(text: str) -> int:
        chars = len(text)
        if chars < MEMO_MIN_CHARS:
            return count_piece(text)
        known = usual if chars < LARGE_CHARS else large
        tokens = known.get(text)
        if tokens is None:
            tokens = count_piece(text) if chars <= PIECE_CHARS else sum(map(count_piece, split_text(text)))
            known[text] = tokens
        return tokens

    return count
