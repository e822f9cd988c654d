"""Which providers the catalogue knows, and which upstreams are none."""

import subprocess
import sys

import pytest

from proxy.state.catalogue.providers import find_host, is_local

OPENAI = "https://api.openai.com/v1"


def test_a_provider_is_found_by_its_url() -> None:
    """A gateway is no provider."""
    host = find_host(OPENAI)
    assert host is not None
    assert host.id == "openai"
    assert find_host("https://llm.example.com/v1") is None


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "127.0.0.1", "[::1]", "10.0.0.7", "192.168.1.2", "172.16.0.1", "100.64.0.1", "169.254.1.1",
        "vllm", "litellm.", "gpu.local", "gpu.lan", "llm.internal", "api.localhost", "[fd00::1]",
    ],
)  # fmt: skip
def test_servers_in_private_networks_are_local(host: str) -> None:
    """They are recognised by name or address."""
    assert is_local(f"http://{host}:8000/v1")


@pytest.mark.parametrize("host", ["api.openai.com", "llm.example.com", "8.8.8.8", "[2606:4700::1111]", "local.example"])
def test_servers_in_the_internet_are_not_local(host: str) -> None:
    """The beginning of their host names does not matter."""
    assert not is_local(f"https://{host}/v1")


LOCAL = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(("base_urls", "loads"), [((), False), ((LOCAL,), False), ((LOCAL, OPENAI), True)])
def test_the_catalogue_is_loaded_only_where_it_serves(base_urls: tuple[str, ...], *, loads: bool) -> None:
    """It is not loaded if all upstreams are local, nor if all windows are configured."""
    code = (
        "import sys; from proxy.state.catalogue import providers as c\n"
        f"c.load_catalogue({base_urls!r}); c.is_ready({LOCAL!r})\n"
        "print('genai_prices' in sys.modules, c.is_ready('https://example.com'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(loads)] * 2
