"""Faster tokenizers: used if they agree with tiktoken, else skipped."""

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest
from support.model_learning import ListLog

from trimtab.proxy.compaction import pool
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.compaction.tokenizers import optional
from trimtab.proxy.compaction.tokenizers.exact import VOCABULARIES, count_pieces
from trimtab.proxy.compaction.tokenizers.optional import SELF_TEST, find_engine
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.rules.conversation import CountTokens

BPE_OPENAI, BINDINGS = "bpe_openai", "bpe_openai._bindings"
Load = Callable[[str], CountTokens]


@pytest.fixture(scope="module")
def counts() -> dict[str, CountTokens]:
    """The counts of tiktoken, by vocabulary."""
    return {name: count_pieces(pool.load_encoding(name)) for name in VOCABULARIES}


@pytest.fixture(autouse=True)
def _none_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the engines that are installed where the tests run."""
    for module in (BPE_OPENAI, BINDINGS):
        monkeypatch.setitem(sys.modules, module, None)


def _install(monkeypatch: pytest.MonkeyPatch, load: Load) -> None:
    """Put modules in the place of the engine's. `load` makes their counters."""
    bindings = ModuleType(BINDINGS)
    bindings.tokenizer_for_encoding = lambda vocabulary: SimpleNamespace(count=load(vocabulary))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, BPE_OPENAI, ModuleType(BPE_OPENAI))
    monkeypatch.setitem(sys.modules, BINDINGS, bindings)


def _fail(error: Exception) -> Load:
    def load(_: str) -> CountTokens:
        raise error

    return load


def _fail_later(error: Exception) -> Load:
    def count(_: str) -> int:
        raise error

    return lambda _: count


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_the_self_test_expects_what_tiktoken_counts(vocabulary: str, counts: dict[str, CountTokens]) -> None:
    """The law holds for each text and vocabulary. Some texts have lone surrogates, which engines refuse."""
    assert [counts[vocabulary](text) for text, _ in SELF_TEST] == [expected[vocabulary] for _, expected in SELF_TEST]
    assert any(any("\ud800" <= char <= "\udfff" for char in text) for text, _ in SELF_TEST)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_where_none_is_installed_nothing_is_said(vocabulary: str) -> None:
    """Engines are optional."""
    log = ListLog()

    assert find_engine(vocabulary, log) is None
    assert log.lines == []


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_one_that_agrees_is_used(
    monkeypatch: pytest.MonkeyPatch, vocabulary: str, counts: dict[str, CountTokens]
) -> None:
    """It is used for the requested vocabulary, and the log says so."""
    _install(monkeypatch, counts.__getitem__)
    log = ListLog()
    count = find_engine(vocabulary, log)

    assert count is not None
    assert count("The quick brown fox") == counts[vocabulary]("The quick brown fox")
    assert log.lines == [{"event": "engine", "engine": BPE_OPENAI, "vocabulary": vocabulary}]


def test_one_that_disagrees_is_refused(monkeypatch: pytest.MonkeyPatch, counts: dict[str, CountTokens]) -> None:
    """It may disagree on one text only, or it may count by the other vocabulary."""
    count, log = counts["o200k_base"], ListLog()
    last = SELF_TEST[-1][0]
    for load in (lambda _: counts["cl100k_base"], lambda _: lambda text: count(text) + (text == last)):
        _install(monkeypatch, load)
        assert find_engine("o200k_base", log) is None

    assert [(line["event"], line["engine"]) for line in log.lines] == [("engine_refused", BPE_OPENAI)] * 2


@pytest.mark.parametrize("make", [_fail, _fail_later])
@pytest.mark.parametrize(
    "error",
    [RuntimeError(), ValueError(), KeyError("o200k_base"), OSError(), AttributeError(), TypeError(), ImportError()],
)
def test_one_that_raises_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[Exception], Load], error: Exception
) -> None:
    """It may raise when it is loaded, or when it counts. The text of its error is not logged."""
    _install(monkeypatch, make(error))
    log = ListLog()

    assert find_engine("o200k_base", log) is None
    broken = {
        "event": "engine_broken",
        "engine": BPE_OPENAI,
        "vocabulary": "o200k_base",
        "reason": type(error).__name__,
    }
    assert log.lines == [broken]


def _plant_before(monkeypatch: pytest.MonkeyPatch, load: Load) -> None:
    """Put a second engine into the table, before the first one."""
    monkeypatch.setattr(optional, "_ENGINES", (("planted", load), *optional._ENGINES))


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (_fail(ModuleNotFoundError()), []),
        (_fail(OSError()), ["engine_broken"]),
        (_fail_later(OSError()), ["engine_broken"]),
        (lambda _: len, ["engine_refused"]),
    ],
    ids=["not installed", "does not load", "does not count", "disagrees"],
)
def test_if_one_cannot_be_used_the_next_is(
    monkeypatch: pytest.MonkeyPatch, counts: dict[str, CountTokens], load: Load, said: list[str]
) -> None:
    """The reason does not matter. Nothing is logged of an engine that is not installed."""
    _install(monkeypatch, counts.__getitem__)
    _plant_before(monkeypatch, load)
    log = ListLog()
    count = find_engine("o200k_base", log)

    assert count is not None
    assert count("The quick brown fox") == counts["o200k_base"]("The quick brown fox")
    told = [(line["event"], line["engine"]) for line in log.lines]
    assert told == [*((event, "planted") for event in said), ("engine", BPE_OPENAI)]


def test_the_first_that_agrees_is_enough(monkeypatch: pytest.MonkeyPatch, counts: dict[str, CountTokens]) -> None:
    """The engines after it are not even loaded."""
    _install(monkeypatch, lambda _: pytest.fail("it is loaded"))
    _plant_before(monkeypatch, counts.__getitem__)
    log = ListLog()

    assert find_engine("o200k_base", log) is counts["o200k_base"]
    assert [(line["event"], line["engine"]) for line in log.lines] == [("engine", "planted")]


def test_another_package_of_that_name_is_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has none of the engine's functions."""
    for module in (BPE_OPENAI, BINDINGS):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    log = ListLog()

    assert find_engine("o200k_base", log) is None
    assert [(line["event"], line["engine"]) for line in log.lines] == [("engine_broken", BPE_OPENAI)]


def test_lone_surrogates_are_repaired(monkeypatch: pytest.MonkeyPatch, counts: dict[str, CountTokens]) -> None:
    """If the engine refuses a text, the text is repaired and counted as by tiktoken. Other texts are not changed."""
    seen: list[str] = []

    def load(vocabulary: str) -> CountTokens:
        def count(text: str) -> int:
            text.encode()
            seen.append(text)
            return counts[vocabulary](text)

        return count

    _install(monkeypatch, load)
    count = find_engine("o200k_base", ListLog())
    assert count is not None
    for text in ("a\ud800b", "\udc00" * 9, "\ud83d\ude00 \ud83d", "plain \U0001f600"):
        assert count(text) == counts["o200k_base"](text)
    assert seen[-1] == "plain \U0001f600"


def test_compactors_count_by_the_engine(monkeypatch: pytest.MonkeyPatch, counts: dict[str, CountTokens]) -> None:
    """Texts are counted in pieces, as by tiktoken. tiktoken's vocabulary is not even loaded."""
    sizes: list[int] = []

    def load(vocabulary: str) -> CountTokens:
        return lambda text: sizes.append(len(text)) or counts[vocabulary](text)  # type: ignore[func-returns-value]

    _install(monkeypatch, load)
    monkeypatch.setattr("trimtab.proxy.compaction.pool.load_encoding", pytest.fail)
    log = ListLog()
    count = Compactors(log).choose(PolicyConfig(), "gpt-4o").count
    sizes.clear()

    assert count("word " * 20_000) == counts["o200k_base"]("word " * 20_000)
    assert len(sizes) == 4
    assert [line["event"] for line in log.lines] == ["engine"]
