"""Checks that the installed engines give the same tokens as tiktoken on random texts.

    python -m bench.tokens.agreement --texts 1000000

Run it in an environment with trimtab and the engines, for example that of `bench.peers.install --only engines`. The
truth is tiktoken with its published patterns; trimtab's regrouped patterns are compared with it, too. A million texts
take some ten minutes for both vocabularies. The status is 1 if anything disagrees.

Law: an engine is called as the proxy calls it, through the same adapter; the same seed gives the same texts.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version

from trimtab.proxy.compaction.tokenizers.exact import VOCABULARIES, count_pieces, load_encoding
from trimtab.proxy.compaction.tokenizers.optional import _ENGINES

Tokens = Callable[[str], list[int]]
Dice = random.Random

TEXTS = 20_000
SHOWN = 3
LONG_CHARS = 4000
_SCRIPTS = (
    (0x20, 0x7E), (0x61, 0x7A), (0x41, 0x5A), (0xA0, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x5FF),
    (0x600, 0x8FF), (0x900, 0xE7F), (0x10A0, 0x1CFF), (0x1D00, 0x1FFF), (0x2000, 0x2BFF), (0x3040, 0x30FF),
    (0x4E00, 0x9FFF), (0xA640, 0xABFF), (0xAC00, 0xD7A3), (0xF900, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x323AF),
)  # fmt: skip
"""Ranges of code points: most of the assigned ones, and some that are not assigned."""
_BLANKS = (" ", "  ", "\t", "\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u1680", "\u2003", "\u2028",
           "\u2029", "\u202f", "\u205f", "\u3000", "\u200b", "\ufeff")  # fmt: skip
_NUMERALS = "0123456789\u0660\u0669\u06f5\u0967\u0be7\u0e52\uff11\u00b2\u00bd\u2167\u2460\u3007\u4e94\U0001d7d8"
_EMOJI = "\U0001f600\U0001f469\U0001f3fd\u200d\u2764\ufe0f\U0001f1e9\U0001f1ea\U0001f9d1\U0001f680\u20e3\u2602"
_ODD = (
    "\x00\x01\x1b\x7f\x80\x9f\xad\u0130\u0131\u017f\u1e9e\u212a\ufffd\ufffe\uffff\ue000\U000e0001\U0010ffff"
    "\ud800\udbff\udc00\udfff"
)
_SPECIAL = ("<|endoftext|>", "<|endofprompt|>", "<|fim_prefix|>", "<|im_start|>", "<|im_end|>", "<|", "|>", "endoftext",
            "<|endoftext", "<|start|>", "<|reserved_200000|>")  # fmt: skip
_CODE = (
    "def ", "return", "self.", "i++", "    ", "\t\t", "{\n", "}\n\n", "();\r\n", "// ", "/* x */", "#include <a>",
    "==", "!=", "->", "=>", "::", "0x1F", "1e-9", "foo_bar", "fooBar", "HTTPServer", "__init__", "'", '"', "\\n",
    "\\u00e9", "$", "@", "https://a.b/c?d=e&f", "/usr/lib", "C:\\Users", "2026-05-01T12:00:00Z",
    '{"a":1,"b":[null]}', "<div>", "</p>", "- [ ] ",
)  # fmt: skip
_CONTRACTIONS = ("'s", "'S", "'t", "'re", "'RE", "'ve", "'m", "'ll", "'LL", "'d", "'D", "'\u017f", "\u2019s", "''",
                 "'r", "don't", "y'all'd've", "IT'S", "l'\xe9t\xe9", "rock'n'roll")  # fmt: skip
_UNITS = (
    "a",
    "A",
    " ",
    "\n",
    "=",
    "-",
    "ab",
    "aB",
    "7",
    "/",
    "'",
    "\u732b",
    "e\u0301",
    "\U0001f600",
    "\r\n",
    " \n",
    "\xa0",
)


def _mix_scripts(dice: Dice) -> str:
    ranges = dice.choices(_SCRIPTS, k=dice.randint(1, 5))
    return "".join(chr(dice.randint(*dice.choice(ranges))) for _ in range(dice.randint(1, 160)))


def _write_words(dice: Dice) -> str:
    low, high = dice.choice(_SCRIPTS)
    words = (
        "".join(chr(dice.randint(low, high)) for _ in range(dice.randint(1, 12))) for _ in range(dice.randint(1, 24))
    )
    return dice.choice(_BLANKS).join(words)


def _choose(*kinds: str | tuple[str, ...]) -> Callable[[Dice], str]:
    """Makes texts from pieces of these kinds in any order, sometimes with words between them."""
    pieces = [piece for kind in kinds for piece in kind]

    def make(dice: Dice) -> str:
        chosen = dice.choices(pieces, k=dice.randint(1, 80))
        for _ in range(dice.randint(0, 8)):
            chosen.insert(dice.randrange(len(chosen) + 1), _write_words(dice)[: dice.randint(1, 20)])
        return "".join(chosen)

    return make


def _repeat(dice: Dice) -> str:
    """Long texts are rare, because they take most of the time."""
    size = dice.choice((8, 30, 120)) if dice.random() < 0.98 else dice.randint(1000, LONG_CHARS)
    runs = (dice.choice(_UNITS) * dice.randint(1, size) for _ in range(dice.randint(1, 5)))
    return "".join(runs) + dice.choice(("", "x", " ", "\n", "'s"))


def _encode_bytes(dice: Dice) -> str:
    data = dice.randbytes(dice.randint(1, 120))
    return dice.choice(
        (data.hex(), data.decode("latin-1"), data.decode("utf-8", "replace"), data.decode("utf-16", "replace"))
    )


KINDS: dict[str, Callable[[Dice], str]] = {
    "mixed scripts": _mix_scripts,
    "words of one script": _write_words,
    "white space": _choose(_BLANKS),
    "numbers": _choose(_NUMERALS, (".", ",", " ", "-", "e", "%")),
    "code": _choose(_CODE, _BLANKS[:6]),
    "contractions": _choose(_CONTRACTIONS, (" ", "x", "X", "\xe9", "\n")),
    "emoji": _choose(_EMOJI, (" ", "a")),
    "odd and invalid": _choose(_ODD, ("a", " ", "S", "'")),
    "special tokens' look-alikes": _choose(_SPECIAL, (" ", "a", "\n")),
    "repeats": _repeat,
    "bytes": _encode_bytes,
}


def make_texts(number: int, seed: int) -> Iterator[tuple[str, str]]:
    """Texts, each with its kind; the kinds alternate."""
    dice = random.Random(seed)  # noqa: S311 - no secret
    kinds = list(KINDS.items())
    for index in range(number):
        name, make = kinds[index % len(kinds)]
        yield name, make(dice)


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine: the tokens of a valid text, and the count of any text as the proxy calls it."""

    encode: Tokens
    count: Callable[[str], int]


def load_engines(vocabulary: str) -> dict[str, Engine]:
    """The installed engines; the first is tiktoken with trimtab's pattern."""
    ours = load_encoding(vocabulary)
    engines = {f"tiktoken {version('tiktoken')} as we use it": Engine(ours.encode_ordinary, count_pieces(ours))}
    for package, load in (("bpe-openai", _load_bpe_openai), ("quicktok-v1", _load_quicktok)):
        try:
            engines[f"{package} {version(package)}"] = load(vocabulary)
        except ModuleNotFoundError:
            continue
    return engines


def _load_bpe_openai(vocabulary: str) -> Engine:
    tokenizer = import_module("bpe_openai._bindings").tokenizer_for_encoding(vocabulary)
    return Engine(tokenizer.encode, dict(_ENGINES)["bpe_openai"](vocabulary))


def _load_quicktok(vocabulary: str) -> Engine:
    """The proxy does not use this engine."""
    tokenizer = import_module("quicktok").get_encoding(vocabulary)
    return Engine(tokenizer.encode_ordinary, lambda text: tokenizer.count(_mend(text)))


def _mend(text: str) -> str:
    """Lone surrogates as tiktoken reads them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def find_disagreements(vocabulary: str, texts: int, seed: int) -> dict[str, Counter[str]]:
    """How many texts of each kind get other tokens or another count from each engine; prints the first of them."""
    truth = load_encoding(vocabulary, is_published=True).encode_ordinary
    engines = load_engines(vocabulary)
    wrong: dict[str, Counter[str]] = {name: Counter() for name in engines}
    for kind, text in make_texts(texts, seed):
        expected = truth(text)
        mended = _mend(text)
        for name, engine in engines.items():
            if list(engine.encode(mended)) != expected or engine.count(text) != len(expected):
                wrong[name][kind] += 1
                if wrong[name].total() <= SHOWN:
                    print(f"{vocabulary}, {name}, {kind}: {text!r}", flush=True)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=TEXTS, help="texts for each vocabulary")
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument(
        "--vocabulary", choices=VOCABULARIES, action="append", help="only this vocabulary (default: both)"
    )
    arguments = parser.parse_args()
    failed = False
    for vocabulary in arguments.vocabulary or VOCABULARIES:
        for name, wrong in find_disagreements(vocabulary, arguments.texts, arguments.seed).items():
            failed = failed or bool(wrong)
            print(f"{vocabulary}: {name} disagrees on {wrong.total()} of {arguments.texts} texts {dict(wrong) or ''}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
