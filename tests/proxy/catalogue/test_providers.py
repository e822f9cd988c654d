"""Which providers the catalogue knows, and which upstreams are none."""

import subprocess
import sys

import pytest

from trimtab.proxy.catalogue.providers import find_host
from trimtab.proxy.config.network import is_local

OPENAI = "https://api.openai.com/v1"


def test_a_provider_is_found_by_its_url() -> None:
    """A gateway is no provider."""
    host = find_host(OPENAI)
    assert host is not None
    assert host.id == "openai"
    assert find_host("https://llm.example.com/v1") is None


@pytest.mark.parametrize(
    ("base_url", "provider"),
    [
        ("http://api.openai.com/v1", "openai"),
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
        "import sys; from trimtab.proxy.catalogue import providers as c\n"
        f"c.load_catalogue({base_urls!r}); c.is_ready({LOCAL!r})\n"
        "print('genai_prices' in sys.modules, c.is_ready('https://example.com'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(loads)] * 2
