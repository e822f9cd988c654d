"""Which family a model belongs to."""

import re
from itertools import product

import pytest

from trimtab.rules.tokens.families import CL100K, FAMILIES, GENERIC, O200K, SAMPLE_TOKENS, Family, find_family
from trimtab.rules.tokens.media import AreaCost, PatchCost, TileCost
from trimtab.rules.tokens.scripts import LEAST_WEIGHTS, SAMPLES, count_chars


def _globs(*models: str) -> list[str]:
    rows = [glob for model in models for glob, family in FAMILIES if family is find_family(model)]
    assert len(rows) == len(models)
    return rows


@pytest.mark.parametrize(
    ("model", "glob"),
    [
        ("gpt-4o", "gpt-4o*"),
        ("openai/gpt-4o-mini", "gpt-4o-mini*"),
        ("ft:gpt-4o-mini-2024-07-18:org::id", "gpt-4o-mini*"),
        ("openai/ft:gpt-4o-2024-08-06:org::id", "gpt-4o*"),
        ("GPT-4o-2024-11-20", "gpt-4o*"),
        ("gpt-4-0613", "gpt-4*"),
        ("gpt-4.1-mini-2025-04-14", "gpt-4.1-mini*"),
        ("gpt-5", "gpt-[5-9]*"),
        ("gpt-5-nano-2025-08-07", "gpt-[5-9]*-nano*"),
        ("openai/gpt-oss-120b", "gpt-oss*"),
        ("o3-mini", "o[1-9]*"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "*claude*"),
        ("anthropic/claude-opus-4.7", "*claude*4[.-][7-9]*"),
        ("ollama/llama3", "*llama*"),
        ("codellama:13b", "*codellama*"),
        ("llama-2-7b-chat", "*llama[-_]2*"),
        ("deepseek-r1-distill-qwen-7b", "*distill-qwen*"),
        ("mistral-large", "*stral*"),
    ],
)
def test_a_model_is_found_by_its_name(model: str, glob: str) -> None:
    """Makers, routers, fine-tunes, snapshots and letter case do not matter."""
    assert _globs(model) == [glob]


@pytest.mark.parametrize(
    "model", ["", "/", "ft:", "ollama/phi", "gpt-", "my-gpt-4o", "o0", "x" * 10**6, "*", "gpt-[5-9]*"]
)
def test_an_unknown_name_is_of_the_generic_family(model: str) -> None:
    """Its costs are not known. The special characters of globs have no meaning in a name."""
    assert find_family(model) is GENERIC


def test_a_very_long_name_is_found_by_its_beginning() -> None:
    """The globs see only its beginning, so its length costs next to nothing."""
    assert _globs("gpt-4o-mini-" + "x" * 10**6, "a/" * 10**6 + "gpt-4.1") == ["gpt-4o-mini*", "gpt-4.1*"]
    assert find_family("x" * 10**6 + "claude") is GENERIC


def _names(glob: str) -> list[str]:
    """Names that the glob matches, with and without something in the place of each star."""
    pieces = re.findall(r"\[[^]]+\]|\*|[^[*]+", glob)
    choices = [("", "x") if piece == "*" else (piece[1],) if piece[0] == "[" else (piece,) for piece in pieces]
    return ["".join(chosen) for chosen in product(*choices)]


def test_every_row_can_be_reached() -> None:
    reached = [glob for glob, family in FAMILIES if any(find_family(name) is family for name in _names(glob))]
    assert reached == [glob for glob, _ in FAMILIES]


def test_what_is_known_of_families() -> None:
    """Tested are the vocabulary, the form of the tools, the effect of reasoning, and the arithmetic of images."""
    early, gpt = find_family("gpt-4"), find_family("gpt-4.1-mini")
    assert (early.vocabulary, early.costs.nested_comments, early.costs.priming_tokens) == (CL100K, False, 3)
    assert (gpt.vocabulary, gpt.costs.nested_comments, gpt.costs.images) == (O200K, True, PatchCost(1.62))
    assert find_family("o4-mini").costs.images == PatchCost(1.72)
    assert find_family("gpt-5").costs.images == TileCost(70, 140)
    assert find_family("claude-3-haiku").costs.images == AreaCost()
    for model in ("gpt-5", "gpt-5-mini", "o3", "gpt-oss-20b"):
        costs = find_family(model).costs
        assert (costs.is_reasoning, costs.reads_typescript, costs.priming_tokens) == (True, True, 2)
    assert find_family("gpt-5").costs.tools_tokens > 5 * find_family("o3").costs.tools_tokens


def test_only_openais_models_read_typescript() -> None:
    """Only they count by their own vocabulary, with ratio 1. All others have a ratio to o200k_base, and may weigh."""
    for glob, family in FAMILIES:
        is_openai = glob.startswith(("gpt", "chatgpt", "codex", "o"))
        assert not (is_openai and family.samples), glob
        assert family.costs.reads_typescript is is_openai, glob
        assert (1.0 if is_openai else 0.95) <= family.ratio <= (1.0 if is_openai else 2.0), glob
        assert is_openai or family.vocabulary == O200K, glob


@pytest.mark.parametrize("vocabulary", SAMPLE_TOKENS)
def test_a_family_counts_the_samples_as_its_own_vocabulary_does(vocabulary: str) -> None:
    """By whichever vocabulary of ours it is counted; above that if only a weight below the least would do."""
    for _, family in FAMILIES:
        if family.samples:
            _check_counts(family, vocabulary)


def _check_counts(family: Family, vocabulary: str) -> None:
    scale, ours = family.find_scale(vocabulary), SAMPLE_TOKENS[vocabulary]
    found = [scale.predict(mine, count_chars(text)) for mine, text in zip(ours, SAMPLES, strict=True)]
    least = [False, *(weight <= least + 0.001 for weight, least in zip(scale.weights, LEAST_WEIGHTS, strict=True))]
    assert not any(least) or vocabulary == CL100K
    for tokens, theirs, is_least in zip(found, family.samples, least, strict=True):
        assert tokens == pytest.approx(theirs, rel=0.02) or (is_least and tokens > theirs)
    if vocabulary == O200K:
        assert (family.ratio, family.costs.weights) == scale
