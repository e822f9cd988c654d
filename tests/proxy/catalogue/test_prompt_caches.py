"""Who gets what for its prompt cache: an example for each row of the table, and those who get nothing."""

import pytest

from trimtab.proxy.catalogue.prompt_caches import MAX_KEPT, ROWS, Refusals, find_additions

KEY, BREAKPOINT, CONTROL = "cache_key", "cache_breakpoint", "cache_control"
OPENAI, OPENROUTER = "https://api.openai.com/v1", "https://openrouter.ai/api/v1"
EXAMPLES = (
    (OPENAI, "chat", "gpt-4o", {KEY}),
    (OPENAI, "responses", "gpt-5.5-2026-02-01", {KEY}),
    ("http://API.openai.com.:8080", "chat", "gpt-4o", {KEY}),
    (OPENAI, "chat", "ft:gpt-4.1-mini:acme::abc", {KEY}),
    (OPENAI, "chat", "o3", {KEY}),
    (OPENAI, "chat", "gpt-5.6-sol", {KEY, BREAKPOINT}),
    (OPENAI, "responses", "GPT-6.1-astra", {KEY, BREAKPOINT}),
    (OPENAI, "responses", "gpt-5.10", {KEY, BREAKPOINT}),
    ("https://acme.openai.azure.com/openai/v1", "chat", "gpt-5.6", {KEY}),
    ("https://acme.cognitiveservices.azure.com", "responses", "gpt-5", {KEY}),
    ("https://acme.services.ai.azure.com/models", "chat", "o4-mini", {KEY}),
    (OPENROUTER, "chat", "openai/gpt-5:nitro", {KEY}),
    (OPENROUTER, "responses", "openai/gpt-5.6-sol", {KEY, BREAKPOINT}),
    (OPENROUTER, "chat", "openai/gpt-6", {KEY, BREAKPOINT}),
    (OPENROUTER, "chat", "anthropic/claude-sonnet-5.5", {CONTROL}),
    (OPENROUTER, "chat", "~anthropic/claude-sonnet-latest", {CONTROL}),
    (OPENROUTER, "messages", "anthropic/claude-opus-5", {CONTROL}),
    ("https://api.anthropic.com", "messages", "claude-opus-5-5", {CONTROL}),
    ("https://gateway.claude.com", "messages", "any", {CONTROL}),
    ("https://acme.services.ai.azure.com/anthropic", "messages", "claude-haiku-5-5", {CONTROL}),
    ("https://ai-gateway.vercel.sh", "messages", "anthropic/claude-opus-5", {CONTROL}),
)
NOTHING = (
    ("http://127.0.0.1:8000/v1", "chat", "gpt-4o"),
    ("http://localhost:8000/v1", "messages", "claude-opus-5"),
    ("https://integrate.api.nvidia.com/v1", "chat", "openai/gpt-5"),
    ("https://api.openai.com.example.org/v1", "chat", "gpt-4o"),
    ("https://notapi.openai.com/v1", "chat", "gpt-4o"),
    ("https://notopenrouter.ai/v1", "chat", "openai/gpt-5"),
    (OPENAI, "chat", "gpt-3.5-turbo"),
    (OPENAI, "chat", "gpt-4-turbo"),
    (OPENAI, "chat", "gpt-4"),
    (OPENAI, "messages", "gpt-5.6"),
    (OPENAI, "chat", "gpt-35-turbo"),
    (OPENAI, "chat", "gpt-4o" + "x" * 300),
    ("https://acme.openai.azure.com/openai/v1", "chat", "DeepSeek-V4"),
    ("https://acme.openai.azure.com/openai/v1", "chat", "my-deployment"),
    (OPENROUTER, "chat", "deepseek/deepseek-v4"),
    (OPENROUTER, "responses", "anthropic/claude-opus-5"),
    ("https://api.anthropic.com", "chat", "claude-opus-5"),
    ("https://ai-gateway.vercel.sh/v1", "chat", "anthropic/claude-opus-5"),
    ("https://api.deepseek.com/anthropic", "messages", "deepseek-chat"),
)


def test_a_host_gets_what_its_provider_documents_and_any_other_nothing() -> None:
    for base_url, dialect, model, adds in (*EXAMPLES, *((*each, set()) for each in NOTHING)):
        assert find_additions(base_url, dialect, model) == adds, (base_url, dialect, model)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.adds} {row.hosts[0]}")
def test_each_host_and_dialect_of_each_row_has_a_source_and_an_example(row) -> None:
    assert row.source.startswith("https://")
    given = [(url, dialect) for url, dialect, _, adds in EXAMPLES if row.adds in adds]
    for host in row.hosts:
        assert any(host in url for url, _ in given)
    for dialect in row.dialects:
        assert any(dialect == each and any(host in url for host in row.hosts) for url, each in given)


# What an upstream has refused is not added again, for the client and the model of that request.

ASKED = ("tenant", "https://api.openai.com/v1", "gpt-4o")


def test_refusals_add_up_for_one_client_upstream_and_model() -> None:
    refused = Refusals[str]()
    refused.keep(ASKED, frozenset({"cache_key"}))
    refused.keep(ASKED, frozenset({"cache_breakpoint"}))
    assert refused.find(ASKED) == {"cache_key", "cache_breakpoint"}
    assert refused.find(("another", *ASKED[1:])) == set()
    assert refused.find((*ASKED[:2], "gpt-5")) == set()


def test_only_the_newest_are_kept() -> None:
    refused = Refusals[str]()
    for number in range(MAX_KEPT + 1):
        refused.keep(("tenant", "url", str(number)), frozenset({"cache_key"}))
    assert refused.find(("tenant", "url", "0")) == set()
    assert refused.find(("tenant", "url", "1")) == {"cache_key"}


def test_what_was_refused_is_tried_again_after_its_time() -> None:
    """The time begins with the first refusal: a later one does not put the trial off."""
    refused = Refusals[str](seconds=100)
    refused.keep(ASKED, frozenset({"temperature"}), now=0)
    refused.keep(ASKED, frozenset({"stream"}), now=60)
    assert refused.find(ASKED, now=99) == {"temperature", "stream"}
    assert refused.find(ASKED, now=100) == set()
    refused.keep(ASKED, frozenset({"stream"}), now=120)
    assert refused.find(ASKED, now=219) == {"stream"}
