"""The configuration's keys for summaries."""

import pytest
from support.config import find_problems

from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.policy import SummaryConfig
from trimtab.rules.economy import Economy, find_budgets
from trimtab.rules.policy import Prices


def _load(text: str) -> SummaryConfig:
    return load_config(f"defaults: {{summary: {text}}}", environment={}).defaults.summary


def test_every_key_is_read() -> None:
    """An unknown window does not change what is set."""
    text = """{by: provider, model: m, request: inline, when: needed, max_tokens: 100, instructions: Keep names.,
    wait_seconds: 0, min_steps: 1, role: pair, timeout_seconds: 3, temperature: 0}"""

    assert _load(text).model_dump(exclude={"upstream"}) == {
        "by": "provider",
        "model": "m",
        "request": "inline",
        "when": "needed",
        "max_tokens": 100,
        "instructions": "Keep names.",
        "wait_seconds": 0.0,
        "min_steps": 1,
        "role": "pair",
        "timeout_seconds": 3.0,
        "temperature": 0.0,
    }
    assert _load("{max_tokens: '100'}").max_tokens == 100


@pytest.mark.parametrize("window_tokens", [8000, 128_000])
def test_a_summary_grows_with_the_window_unless_its_size_is_set(window_tokens: int) -> None:
    """A learned window counts like any other."""
    sizes = [
        load_config(text, environment={}).defaults.to_policy(Prices(), window_tokens=window_tokens).summary_max_tokens
        for text in ("", "defaults: {summary: {max_tokens: auto}}", "defaults: {summary: {max_tokens: 700}}")
    ]
    fitted = find_budgets(Economy.BALANCED, window_tokens).summary_tokens
    assert sizes == [fitted, fitted, 700]


@pytest.mark.parametrize("instructions", ["", "x" * 4001])
def test_instructions_are_words_of_a_bounded_length(instructions: str) -> None:
    """They are part of every prompt. To set none, write null, not an empty text."""
    assert _load("{}").instructions is None
    assert len(_load(f"{{instructions: {'x' * 4000}}}").instructions or "") == 4000
    (problem,) = find_problems(f"defaults: {{summary: {{instructions: '{instructions}'}}}}")
    assert problem.startswith("defaults.summary.instructions (line 1): ")
