"""The engine of the extra `speed`, if it is installed, agrees with tiktoken and its published patterns."""

import pytest

from bench.tokens import agreement
from bench.tokens.agreement import KINDS, Engine, find_disagreements
from trimtab.proxy.compaction.tokenizers.exact import VOCABULARIES, load_encoding

TEXTS = 30 * len(KINDS)
pytestmark = pytest.mark.filterwarnings(
    "ignore:open_binary is deprecated:DeprecationWarning"
)  # raised inside bpe-openai


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_what_we_use_has_the_published_tokens(vocabulary: str) -> None:
    """Tiktoken with our patterns agrees, and so does the engine, for tokens and for counts."""
    wrong = find_disagreements(vocabulary, TEXTS, seed=7)
    used = {name: kinds for name, kinds in wrong.items() if not name.startswith("quicktok")}

    assert used
    assert not any(used.values())


def test_other_tokens_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: for the tokens of another vocabulary, and for a wrong count."""
    tokens, others = (load_encoding(vocabulary).encode_ordinary for vocabulary in VOCABULARIES)
    engines = {
        "other tokens": Engine(others, lambda text: len(tokens(text))),
        "another count": Engine(tokens, lambda text: len(tokens(text)) + 1),
    }
    monkeypatch.setattr(agreement, "load_engines", lambda _: engines)

    wrong = find_disagreements(VOCABULARIES[0], TEXTS, seed=7)

    assert all(kinds.total() > TEXTS / 2 for kinds in wrong.values())
