"""The environment of a wrapped command, and the upstreams of its clients."""

import pytest

from trimtab.proxy.cli.serving.wrap import Destination, Family, choose_destinations, write_environment
from trimtab.proxy.config.load import load_config

OPENAI, ANTHROPIC = "https://api.openai.com/v1", "https://api.anthropic.com/v1"
AZURE = "https://ours.openai.azure.com/openai/v1"
LOCAL = "http://127.0.0.1:8000/v1"


def choose(*settings: str, **environment: str) -> dict[str, str]:
    """The upstream of each family; those of the configuration are marked."""
    ways = choose_destinations(load_config(settings=settings, environment={}), environment)
    return {
        family.name: f"{way.base_url}{' configured' if way.is_configured else ''}"
        for way in ways
        for family in way.families
    }


def test_without_any_setting_each_family_has_its_own_server() -> None:
    """One command may ask both."""
    assert choose() == {"OPENAI": f"{OPENAI} configured", "ANTHROPIC": ANTHROPIC}


@pytest.mark.parametrize(
    ("url", "ways"),
    [
        (OPENAI, {"OPENAI": f"{OPENAI} configured", "ANTHROPIC": ANTHROPIC}),
        (ANTHROPIC, {"OPENAI": OPENAI, "ANTHROPIC": f"{ANTHROPIC} configured"}),
        (AZURE, {"OPENAI": f"{AZURE} configured", "ANTHROPIC": ANTHROPIC, "AZURE": f"{AZURE} configured"}),
        (LOCAL, {"OPENAI": f"{LOCAL} configured", "ANTHROPIC": f"{LOCAL} configured"}),
    ],
)
def test_a_named_upstream_is_that_of_the_families_which_it_may_serve(url: str, ways: dict[str, str]) -> None:
    """A host that is not known may serve both dialects. A provider's own host gets no other provider's key."""
    assert choose(f"upstream.base_url={url}") == ways


@pytest.mark.parametrize(
    ("environment", "ways"),
    [
        ({"OPENAI_BASE_URL": f"{LOCAL}/"}, {"OPENAI": LOCAL, "ANTHROPIC": ANTHROPIC}),
        ({"OPENAI_API_BASE": LOCAL}, {"OPENAI": LOCAL, "ANTHROPIC": ANTHROPIC}),
        ({"ANTHROPIC_BASE_URL": "https://gate.test/a"}, {"ANTHROPIC": "https://gate.test/a/v1"}),
        ({"ANTHROPIC_API_BASE": "https://gate.test/v1"}, {"ANTHROPIC": "https://gate.test/v1"}),
        ({"OPENAI_BASE_URL": ""}, {"OPENAI": f"{OPENAI} configured"}),
    ],
)
def test_the_upstream_is_the_one_that_a_variable_named_before(
    environment: dict[str, str], ways: dict[str, str]
) -> None:
    """So a command that worked still asks the same server."""
    assert choose(**environment).items() >= ways.items()


def test_azures_clients_are_not_led_to_openai() -> None:
    """The client for Node prefers OPENAI_BASE_URL, so it stays unset unless there is a key for it."""
    azure = {"AZURE_OPENAI_ENDPOINT": "https://ours.openai.azure.com/"}
    assert choose(**azure) == {"ANTHROPIC": ANTHROPIC, "AZURE": AZURE}
    assert choose(**azure, OPENAI_API_KEY="k")["OPENAI"] == f"{OPENAI} configured"


def test_the_key_of_the_configuration_goes_to_no_other_server() -> None:
    """The forward proxy and the authorities hold for every server."""
    config = load_config(settings=["upstream={api_key: PLANTED, proxy: direct}"], environment={})
    (one, other) = choose_destinations(config, {"OPENAI_BASE_URL": LOCAL})
    for way, url in ((one, LOCAL), (other, ANTHROPIC)):
        (setting,) = way.write_setting(config)
        assert "PLANTED" not in setting
        upstream = load_config(settings=["upstream.api_key=PLANTED", setting], environment={}).upstream
        assert (upstream.base_url, upstream.api_key, upstream.proxy) == (url, None, "direct")


def test_every_variable_that_clients_read_leads_to_the_proxy() -> None:
    """Anthropic's has no /v1. A variable of LiteLLM is set only if it was set before. The rest stays."""
    urls = [
        (Destination(OPENAI, (Family.OPENAI,), is_configured=True), "http://p"),
        (Destination(ANTHROPIC, (Family.ANTHROPIC,), is_configured=False), "http://q"),
        (Destination(AZURE, (Family.AZURE,), is_configured=False), "http://r"),
    ]
    before = {"AZURE_API_BASE": "https://ours.openai.azure.com", "HOME": "/home/us", "OPENAI_API_KEY": "k"}
    assert write_environment(before, urls) == {
        "OPENAI_BASE_URL": "http://p/v1",
        "OPENAI_API_BASE": "http://p/v1",
        "ANTHROPIC_BASE_URL": "http://q",
        "AZURE_OPENAI_ENDPOINT": "http://r",
        "AZURE_API_BASE": "http://r",
        "HOME": "/home/us",
        "OPENAI_API_KEY": "k",
    }


@pytest.mark.parametrize(
    ("before", "exempt"),
    [
        ({"HTTPS_PROXY": "http://forward.test:3128"}, "127.0.0.1,localhost"),
        ({"http_proxy": "http://forward.test:3128", "no_proxy": "a.test,localhost"}, "a.test,localhost,127.0.0.1"),
        ({"HTTPS_PROXY": ""}, None),
    ],
)
def test_a_forward_proxy_does_not_get_the_requests_to_this_machine(before: dict[str, str], exempt: str | None) -> None:
    """Clients read either spelling of the variable."""
    written = write_environment(before, [])
    assert (written.get("no_proxy"), written.get("NO_PROXY")) == (exempt, exempt)
