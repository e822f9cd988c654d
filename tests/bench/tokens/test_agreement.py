"""The engine of the extra `speed`, if it is installed, agrees with tiktoken and its published patterns."""

import pytest
from support.model_learning import ListLog

from bench.tokens import agreement
from bench.tokens.agreement import KINDS, Engine, find_disagreements, make_texts
from trimtab.proxy.compaction.tokenizers.exact import VOCABULARIES, load_encoding
from trimtab.proxy.compaction.tokenizers.optional import find_engine

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


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_the_engine_passes_the_self_test(vocabulary: str) -> None:
    """The installed package itself, not a stand-in."""
    pytest.importorskip("bpe_openai")

    assert find_engine(vocabulary, ListLog()) is not None


def test_texts_are_of_every_kind_and_the_same_in_every_run() -> None:
    """A run can be repeated with its seed. Another seed gives other texts."""
    texts = list(make_texts(TEXTS, 1))

    assert {kind for kind, _ in texts} == set(KINDS)
    assert texts == list(make_texts(TEXTS, 1)) != list(make_texts(TEXTS, 2))
    assert any("<|endoftext|>" in text for _, text in texts)
    assert any("\ud800" in text for _, text in texts)


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
