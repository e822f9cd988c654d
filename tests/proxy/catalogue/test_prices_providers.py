"""Which providers the catalogue knows, and which upstreams are none."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.catalogue import prices
from trimtab.proxy.catalogue.prices import MAX_NAME_CHARS, MIN_WINDOW_TOKENS, asks_million, find_host, find_window

OPENAI = "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("base_url", "provider"),
    [
        ("http://api.openai.com:8080", "openai"),
        ("https://API.openai.com.:443/v1", "openai"),
        ("http://openrouter.ai:8080/api/v1", "openrouter"),
        ("http://router.huggingface.co/groq/v1", "huggingface_groq"),
        ("http://api.moonshot.cn:80/v1", "moonshotai"),
        ("http://acme.openai.azure.com:8080/openai/v1", "azure"),
        ("http://bedrock-runtime.eu-west-1.amazonaws.com/v1", "aws"),
        ("http://us-central1-aiplatform.googleapis.com:1/v1", "google"),
        ("https://api.openai.com.example.org/v1", None),
        ("https://example.org/https://api.openai.com/v1", None),
        ("http://router.huggingface.co:8080/other", None),
    ],
)
def test_the_host_decides_whatever_the_scheme_and_the_port(base_url: str, provider: str | None) -> None:
    """Plain HTTP and a port of its own are common behind a proxy that adds TLS."""
    host = find_host(base_url)
    assert (None if host is None else host.id) == provider


LOCAL = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(("base_urls", "loads"), [((LOCAL,), False), ((LOCAL, OPENAI), True)])
def test_the_catalogue_is_loaded_only_where_it_serves(base_urls: tuple[str, ...], *, loads: bool) -> None:
    """It is not loaded if all upstreams are local, nor if all windows are configured."""
    code = (
        "import sys; from trimtab.proxy.catalogue import prices as c\n"
        f"c.load_catalogue({base_urls!r}); c.is_ready({LOCAL!r})\n"
        "print('genai_prices' in sys.modules, c.is_ready('https://example.com'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(loads)] * 2


# Which models the catalogue knows.

GATEWAY = "https://llm.example.com/v1"


@pytest.mark.parametrize(
    ("base_url", "model", "window_tokens"),
    [
        (OPENAI, "gpt-4o", 128_000),
        (OPENAI, "gpt-3.5-turbo", 16_385),
        ("https://api.anthropic.com/v1", "claude-3-5-haiku-latest", 200_000),
        (OPENAI, "gpt-5", 272_000),  # of 400,000 tokens, 128,000 are for the completion
        (OPENAI, "gpt-5-mini-2025-08-07", 272_000),
        (GATEWAY, "openai/gpt-5-codex", 272_000),
        (OPENAI, "gpt-5.2-chat-latest", 128_000),
        (OPENAI, "gpt-5.4", 922_000),
        (OPENAI, "gpt-5.4-mini", 272_000),
        (OPENAI, "gpt-6-sol", 922_000),
        ("https://api.deepseek.com/v1", "deepseek-chat", 128_000),
        ("https://api.anthropic.com/v1", "claude-sonnet-4-5", 200_000),
        ("https://api.anthropic.com/v1", "claude-sonnet-4-5[1m]", 200_000),
        (OPENAI, "no-such-model", None),
        (OPENAI, "claude-3-5-haiku-latest", None),  # another's
        (GATEWAY, "gpt-4o", 128_000),
        (GATEWAY, "openai/gpt-4o", 128_000),
        (GATEWAY, "my-own-model", None),
        (GATEWAY, "", None),
        ("http://vllm:8000/v1", "gpt-4o", None),  # a local server may run a model of that name in any window
    ],
)
def test_the_window_is_the_hosts_else_the_makers(base_url: str, model: str, window_tokens: int | None) -> None:
    """It is found by the upstream's URL, else by the model's name."""
    assert find_window(base_url, model) == window_tokens


@pytest.mark.parametrize(
    ("model", "betas", "asks"),
    [
        ("claude-sonnet-4-5", "context-1m-2025-08-07", True),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", '["context-1m-2025-08-07"]', True),
        ("anthropic/claude-sonnet-4.5", "context-1m-2027-01-01", True),
        ("claude-sonnet-4-5[1m]", "", True),
        ("claude-opus-4-6[1M]", "", True),
        ("claude-mythos-5-2[1m]", "", True),
        ("claude-sonnet-4-5", "oauth-2025-04-20", False),
        ("claude-opus-4-5", "context-1m-2025-08-07", False),
        ("claude-3-7-sonnet-latest", "context-1m-2025-08-07", False),
        ("gpt-5[1m]", "", False),
    ],
)
def test_a_window_of_a_million_is_asked_for(model: str, betas: str, asks: bool) -> None:  # noqa: FBT001
    """By a feature or by the model's name; only models that have one."""
    assert asks_million(model, betas) is asks


@given(st.text(max_size=40) | st.just("gpt-4o" * MAX_NAME_CHARS))
def test_any_name_is_answered(model: str) -> None:
    """Clients may send any name; the answer is None or a window."""
    for base_url in (OPENAI, GATEWAY, "https://openrouter.ai/api/v1"):
        window_tokens = find_window(base_url, model)
        assert window_tokens is None or window_tokens >= 1024


def test_nothing_is_asked_of_the_network() -> None:
    """Loading and looking up open no socket, and do not start the package's own updates."""
    code = (
        "import sys, threading\n"
        "def refuse(event, _): assert not event.startswith('socket.'), event\n"
        "sys.addaudithook(refuse)\n"
        "from trimtab.proxy.catalogue.prices import find_window\n"
        f"assert find_window({OPENAI!r}, 'gpt-4o') == 128000\n"
        "assert threading.active_count() == 1"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_window_too_small_to_be_one_is_unknown() -> None:
    """The catalogue has figures that are no windows. The smallest of the others counts."""
    least, none = MIN_WINDOW_TOKENS, MIN_WINDOW_TOKENS - 1
    makers: list[Any] = [
        SimpleNamespace(find_model=lambda *_, tokens=tokens, **__: SimpleNamespace(context_window=tokens))
        for tokens in (none, None, least + 1, least)
    ]
    assert [prices._find_smallest(makers[:stop], "m") for stop in (2, 3, 4)] == [None, least + 1, least]
