"""How long a prompt stays cached."""

import pytest

from trimtab.proxy.catalogue.prompt_caches import DAY_SECONDS, HOUR_SECONDS, Lifetimes, find_lifetime_seconds

OPENAI = "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("base_url", "model", "wanted", "seconds"),
    [
        ("http://127.0.0.1:8000/v1", "m", (), None),
        (OPENAI, "gpt-4o", (), 300),
        (OPENAI, "gpt-5", (), 300),
        (OPENAI, "gpt-5.1", ("24h",), DAY_SECONDS),
        (OPENAI, "gpt-5.5", (), DAY_SECONDS),
        (OPENAI, "gpt-5.6-sol", (), 1800),
        ("http://API.openai.com.:8080", "gpt-5.6-sol", (), 1800),
        (OPENAI, "gpt-5.10", (), 1800),
        (OPENAI, "gpt-6-astra", (), 1800),
        ("https://mine.openai.azure.com/openai/v1", "gpt-5.6", (), 1800),
        ("https://api.anthropic.com/v1", "claude-opus-4-8", (), 300),
        ("https://api.anthropic.com/v1", "claude-opus-4-8", ("5m", "1h"), HOUR_SECONDS),
        ("https://api.deepseek.com", "deepseek-v4", (), 2 * HOUR_SECONDS),
        ("https://api.groq.com/openai/v1", "kimi-k2", (), 2 * HOUR_SECONDS),
        ("https://api.x.ai/v1", "grok-4", (), HOUR_SECONDS),
        ("https://openrouter.ai/api/v1", "openai/gpt-5.6", (), 1800),
        ("https://openrouter.ai/api/v1", "anthropic/claude-sonnet-5.5", (), 300),
        ("https://openrouter.ai/api/v1", "deepseek/deepseek-v4", (), 2 * HOUR_SECONDS),
        (OPENAI, "gpt-35-turbo", ("forever",), 300),
        ("https://mine.cognitiveservices.azure.com/openai/v1", "gpt-5.6", (), 1800),
        ("https://mine.services.ai.azure.com/anthropic", "claude-opus-4-8", (), 300),
        ("https://ai-gateway.vercel.sh/v1", "openai/gpt-5.6", (), 1800),
        ("https://api.openai.com.evil.example/v1", "gpt-5.6", (), None),
        ("https://models.example.com/v1", "m", ("1h",), None),
    ],
)
def test_the_host_the_model_and_the_request_decide(base_url, model, wanted, seconds) -> None:
    """A retention that the request asks for counts if it is longer; an unknown word counts for nothing."""
    assert find_lifetime_seconds(base_url, model, wanted) == seconds


def test_a_cache_that_outlived_a_silence_teaches_its_client_only() -> None:
    """The longest such silence counts, and a cached head alone proves nothing."""
    lifetimes = Lifetimes()
    lifetimes.learn("a", OPENAI, "gpt-4o", 1500.0, 0.9)
    lifetimes.learn("a", OPENAI, "gpt-4o", 900.0, 0.9)
    lifetimes.learn("a", OPENAI, "gpt-4o", 5000.0, 0.2)
    assert lifetimes.find("a", OPENAI, "gpt-4o") == 1500
    assert lifetimes.find("b", OPENAI, "gpt-4o") == 300
    assert lifetimes.find("a", OPENAI, "gpt-4.1") == 300


def test_nothing_is_learned_about_a_server_of_ones_own_or_beyond_a_day() -> None:
    """What its memory holds depends on load."""
    lifetimes = Lifetimes()
    lifetimes.learn("a", "http://127.0.0.1:8000/v1", "m", 900.0, 1.0)
    lifetimes.learn("a", OPENAI, "gpt-4o", 1e9, 1.0)
    assert lifetimes.find("a", "http://127.0.0.1:8000/v1", "m") is None
    assert lifetimes.find("a", OPENAI, "gpt-4o") == DAY_SECONDS


def test_a_short_silence_needs_no_look_up() -> None:
    """No cache in the table ends sooner."""
    assert not Lifetimes().may_be_over(300.0)
    assert Lifetimes().may_be_over(300.5)
