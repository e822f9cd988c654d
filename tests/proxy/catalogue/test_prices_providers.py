"""Which providers the catalogue knows, and which upstreams are none."""

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.golden import read_tables

from trimtab.proxy.catalogue import prices
from trimtab.proxy.catalogue.prices import MAX_NAME_CHARS, MIN_WINDOW_TOKENS, asks_million, find_host, find_window

OPENAI = "https://api.openai.com/v1"


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


FUNCTIONS: dict[str, Callable[..., object]] = {
    "find_host": lambda url: getattr(find_host(url), "id", None),
    **{function.__name__: function for function in (find_window, asks_million)},
}


@pytest.mark.parametrize("law", read_tables("providers"), ids=lambda law: law["function"])
def test_each_law_of_the_table_holds(law: dict[str, Any]) -> None:
    for *arguments, answer in law["cases"]:
        assert FUNCTIONS[law["function"]](*arguments) == answer, arguments


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
