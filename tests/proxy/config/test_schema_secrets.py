"""Every credential of a configuration is listed."""

from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import find_in_name, list_secrets

FILE = """
client_keys: {alice: sk-alice}
admin_token: admin
upstream: {api_key: sk-main, proxy: "http://u:proxy%2B1@p:1"}
upstreams: {other: {base_url: "http://127.0.0.1:1/v1", api_key: sk-other}}
store: "redis://:redis-1@r:6379/0"
"""


def test_every_credential_is_listed_and_those_of_clients_are_the_last():
    config = load_config(FILE, environment={"HTTPS_PROXY": "http://u:env-1@p:1"})
    listed = list_secrets(config)
    assert set(listed) == {
        "sk-alice", "admin", "sk-main", "sk-other", "proxy%2B1", "proxy+1", "redis-1", "env-1",
    }  # fmt: skip
    assert listed[-1] == "sk-alice"
    assert list_secrets(config) is listed


def test_an_empty_configuration_has_none():
    assert list_secrets(load_config("", environment={})) == ()


def test_a_credential_in_a_name_is_found_unless_it_is_short():
    config = load_config("upstream: {api_key: sk-main-0123456789}\nadmin_token: gpt", environment={})
    assert find_in_name(config, "m-sk-main-0123456789-x") == ("sk-main-0123456789",)
    assert find_in_name(config, "sk-main-0123456789" + "x" * 1000) == ("sk-main-0123456789",)
    assert find_in_name(config, "gpt-5") == ()
