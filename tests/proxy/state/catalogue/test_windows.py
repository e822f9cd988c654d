"""Which models the catalogue knows."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.state.catalogue.providers import MAX_NAME_CHARS
from proxy.state.catalogue.windows import find_window

OPENAI = "https://api.openai.com/v1"
GATEWAY = "https://llm.example.com/v1"


@pytest.mark.parametrize(
    ("base_url", "model", "window_tokens"),
    [
        (OPENAI, "gpt-4o", 128_000),
        (OPENAI, "gpt-4o-2024-08-06", 128_000),
        (OPENAI, "gpt-3.5-turbo", 16_385),
        ("https://api.anthropic.com/v1", "claude-3-5-haiku-latest", 200_000),
        (OPENAI, "no-such-model", None),
        (OPENAI, "claude-3-5-haiku-latest", None),  # another's
        (GATEWAY, "gpt-4o", 128_000),
        (GATEWAY, "openai/gpt-4o", 128_000),
        (GATEWAY, "my-own-model", None),
        (GATEWAY, "", None),
    ],
)
def test_the_window_is_the_hosts_else_the_makers(base_url: str, model: str, window_tokens: int | None) -> None:
    """It is found by the upstream's URL, else by the model's name."""
    assert find_window(base_url, model) == window_tokens


@given(st.text(max_size=40) | st.just("gpt-4o" * MAX_NAME_CHARS))
def test_any_name_is_answered(model: str) -> None:
    """Clients may send any name; the answer is None or a window."""
    for base_url in (OPENAI, GATEWAY, "https://openrouter.ai/api/v1"):
        window_tokens = find_window(base_url, model)
        assert window_tokens is None or window_tokens >= 1024


def test_nothing_is_said_of_local_servers() -> None:
    """A local server may run a model with the name of a hosted one in any window."""
    assert find_window("http://vllm:8000/v1", "gpt-4o") is None


def test_nothing_is_asked_of_the_network() -> None:
    """Loading and looking up open no socket, and do not start the package's own updates."""
    code = (
        "import sys, threading\n"
        "def refuse(event, _): assert not event.startswith('socket.'), event\n"
        "sys.addaudithook(refuse)\n"
        "from proxy.state.catalogue.windows import find_window\n"
        f"assert find_window({OPENAI!r}, 'gpt-4o') == 128000\n"
        "assert threading.active_count() == 1"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
