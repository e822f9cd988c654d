"""Faster tokenizers than tiktoken, if the user has installed one (the extra `speed`).

Law: an engine that disagrees with tiktoken is not used. The self-test at the start detects another package or version.
`bench.tokens.agreement` checks that the engines named here agree to the last token. quicktok-v1 0.4.0 is five times as
fast but disagrees: it is wrong after a contraction with a long s, and knows letters of a later version of Unicode.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from trimtab.rules.conversation import CountTokens

SELF_TEST: tuple[tuple[str, dict[str, int]], ...] = (
    ("", {"o200k_base": 0, "cl100k_base": 0}),
    ("The quick brown fox doesn't jump; it'll think THAT'S fine.", {"o200k_base": 13, "cl100k_base": 15}),
    ("    if x == 1:\r\n\t\treturn {'a': [1, 2.5, None]}\n\n\n", {"o200k_base": 23, "cl100k_base": 23}),
    (
        '{"id":"9f3c-77ab","items":[{"price":1234567.89,"ok":true},{"path":"/usr/lib/x86_64"}]}',
        {"o200k_base": 37, "cl100k_base": 35},
    ),
    (
        "2026-05-01T12:00:00,123 ERROR worker-7 GET /v1/items/93?x=1&y=2 500 in 0.12s; retrying\n",
        {"o200k_base": 45, "cl100k_base": 45},
    ),
    (
        "我喜欢猫\uff0c它们很可爱。今日は良い天気ですね。고양이를 좋아해요.",
        {"o200k_base": 23, "cl100k_base": 41},
    ),
    (
        "Съешь ещё этих мягких французских булок. שלום עולם مرحبا بالعالم สวัสดีชาวโลก नमस्ते",
        {"o200k_base": 28, "cl100k_base": 68},
    ),
    (
        "na\xefve cafe\u0301 A\u030a \u1e9b\u0323 \u01c5 \u02b0 \u2167 \xb2\xb3 \xbd",
        {"o200k_base": 25, "cl100k_base": 27},
    ),
    (
        "\U0001f469‍\U0001f469‍\U0001f467‍\U0001f466 \U0001f1e9\U0001f1ea ☕️ \U0001f9d1\U0001f3fd‍\U0001f680",
        {"o200k_base": 26, "cl100k_base": 38},
    ),
    ("<|endoftext|><|im_start|>system<|endofprompt|>", {"o200k_base": 20, "cl100k_base": 20}),
    ("m'\u017f'DI X'\u017f'red", {"o200k_base": 10, "cl100k_base": 12}),
    ("don'\u017f IT'\u017f we'RE 'Tis y'all'd've", {"o200k_base": 16, "cl100k_base": 17}),
    ("\U000323be\U00018d92\U0002ebf0\U00011f00 \ua7cb\u1c89", {"o200k_base": 22, "cl100k_base": 22}),
    ("a\ud800b \udc00", {"o200k_base": 4, "cl100k_base": 4}),
    (" " * 97 + "\xa0\u3000\t x" + "\n" * 33 + "/" * 9, {"o200k_base": 11, "cl100k_base": 10}),
    ("aGVsbG8gd29ybGQ" * 9 + "==" + "0123456789abcdef" * 7, {"o200k_base": 118, "cl100k_base": 126}),
    ("=" * 200 + "-" * 77 + "ab" * 150, {"o200k_base": 79, "cl100k_base": 156}),
)
"""Texts, with their number of tokens by tiktoken 0.14."""


def find_engine(vocabulary: str, log: Any) -> CountTokens | None:
    for name, load in _ENGINES:
        try:
            count = load(vocabulary)
            agrees = all(count(text) == expected[vocabulary] for text, expected in SELF_TEST)
        except ModuleNotFoundError:
            continue
        except _BROKEN as error:
            log.warning("engine_broken", engine=name, vocabulary=vocabulary, reason=type(error).__name__)
            continue
        if agrees:
            log.info("engine", engine=name, vocabulary=vocabulary)
            return count
        log.warning("engine_refused", engine=name, vocabulary=vocabulary, reason="it disagrees with tiktoken")
    return None


def _load_bpe_openai(vocabulary: str) -> CountTokens:
    return _repairing(import_module("bpe_openai._bindings").tokenizer_for_encoding(vocabulary).count)


_BROKEN = (ImportError, RuntimeError, ValueError, LookupError, OSError, AttributeError, TypeError)
"""Errors of an engine that is damaged, or of another package with its name."""
_ENGINES: tuple[tuple[str, Callable[[str], CountTokens]], ...] = (("bpe_openai", _load_bpe_openai),)


def _repairing(count: CountTokens) -> CountTokens:

    def repaired(text: str) -> int:
        try:
            return count(text)
        except UnicodeEncodeError:
            return count(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))

    return repaired
