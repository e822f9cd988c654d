"""The configuration: what is read, and which value wins."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from support.authority import Authority
from support.golden import check_golden

from trimtab.proxy.config.document import Document, name_path
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.policy import ModelConfig, PolicyConfig, SummaryConfig, ToolConfig
from trimtab.proxy.config.schema import (
    MAX_MODEL_CHARS,
    MIN_MEMORY_BYTES,
    MIN_NAMED_CHARS,
    CompactionConfig,
    Config,
    LimitsConfig,
    UpstreamConfig,
    find_in_name,
    list_secrets,
)

EXAMPLE = Path(__file__).parents[3] / "config.example.yaml"


def _load(text: str = "", *settings: str, **environment: str) -> Config:
    return load_config(text, settings=settings, environment=environment)


def _keys(model: type[BaseModel], prefix: str = "") -> set[str]:
    """Every key of a section and of the sections in it, dotted."""
    found: set[str] = set()
    for name, field in model.model_fields.items():
        found.add(prefix + (field.alias or name))
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found |= _keys(field.annotation, f"{prefix}{name}.")
    return found


def test_the_example_is_the_defaults() -> None:
    """The file shows every default."""
    assert _load(EXAMPLE.read_text()) == _load()


def test_the_example_names_every_key_with_a_comment() -> None:
    """Each key is in the example, and each has a comment."""
    text = EXAMPLE.read_text()
    lines = text.splitlines()
    places = {name_path(path): line for path, (line, _) in Document.parse(text).places.items()}

    assert {name for name in places if not name.endswith("]")} == _keys(Config)
    assert all(f"#      {key}: " in text for key in ToolConfig.model_fields)
    assert [name for name, line in places.items() if not re.search(r"\S\s+# \S", lines[line - 1])] == []


def test_the_policies_that_the_example_only_mentions_are_valid() -> None:
    """The commented lines are valid if they are uncommented."""
    text = re.sub(
        r"^((?:models|profiles|  tools|  context_windows):) (?:\[\]|\{\})",
        r"\1",
        EXAMPLE.read_text(),
        flags=re.MULTILINE,
    )
    config = _load(re.sub(r"^#  ", "  ", text, flags=re.MULTILINE))

    assert (len(config.models), list(config.profiles)) == (1, ["router"])
    assert list(config.defaults.tools) == ["*search*", "[Rr]ead*"]
    assert [one.tokens for one in config.defaults.context_windows] == [1_000_000, 272_000]


POLICIES = """
upstreams: {local: {base_url: "http://127.0.0.1:8080/v1"}}
defaults: {protect_turns: 7, completion_reserve: 100, summary: {model: cheap, min_steps: 9}}
models:
  - {match: "qwen3*", context_window: 32768, summary: {min_steps: 2}}
  - {match: "qwen*", context_window: 16000, upstream: local}
  - {match: "[ab]?", high_water: 0.7}
profiles: {router: {context_window: 8000, summary: {upstream: local}}}
"""


def test_matches_profiles_and_upstreams_are_found_by_name() -> None:
    """Without a match the result is None. Without a name it is the main upstream."""
    config = _load(POLICIES)

    assert [entry and entry.match for entry in map(config.match_for, ("qwen3", "qwen", "x"))] == [
        "qwen3*",
        "qwen*",
        None,
    ]
    assert (config.upstream_for(None), config.upstream_for("local")) == (config.upstream, config.upstreams["local"])


def test_a_name_of_megabytes_matches_nothing() -> None:
    """Matching globs against all of it took seconds. A name of ordinary length is matched whole."""
    config = _load("models: [{match: 'a*a*a*'}, {match: '*'}]")
    assert config.match_for("a" * MAX_MODEL_CHARS) == config.models[0]
    assert config.match_for("b" * MAX_MODEL_CHARS) == config.models[1]
    assert config.match_for("a" * (MAX_MODEL_CHARS + 1)) is None
    assert config.policy_for("a" * 1_000_000) == config.defaults


def test_no_key_stands_in_what_python_says_of_a_configuration() -> None:
    """Neither a traceback nor a log line shows one."""
    upstream = "upstream: {api_key: PLANT, proxy: 'http://user:PLANT@proxy.test:1'}"
    text = f"{upstream}\nclient_keys: [PLANT]\nadmin_token: PLANT\nstore: redis://:PLANT@h:1/0"
    config = _load(text, "upstreams.b.api_key=PLANT")
    route = config.upstream.route
    assert (
        "PLANT" not in f"{config!r} {config} {config.upstream!r} {config.upstream} {config.upstreams} {route!r} {route}"
    )
    assert list_secrets(load_config("", environment={})) == ()


def test_one_process_alone_has_the_very_configuration() -> None:
    """Several workers have their parts of the limits. Everything else is the same."""
    config = Config()
    assert config.as_worker_of(1) is config
    part = config.as_worker_of(4)
    assert part.limits.max_memory_bytes == config.limits.max_memory_bytes // 4
    assert part.model_copy(update={"limits": config.limits}) == config


def test_the_model_decides_the_upstream_only_if_a_policy_names_one() -> None:
    """A profile does not count: a request must name it, and only requests that are compacted can."""
    upstreams = {"a": UpstreamConfig(), "b": UpstreamConfig()}
    profiles = {"p": PolicyConfig(upstream="b")}
    assert not Config(upstreams=upstreams, profiles=profiles).routes_by_model
    assert Config(upstreams=upstreams, defaults=PolicyConfig(upstream="a")).routes_by_model
    assert Config(upstreams=upstreams, models=(ModelConfig(match="m", upstream="a"),)).routes_by_model


def test_the_upstreams_that_requests_can_reach_are_those_of_policies() -> None:
    """The main one is always the first. An upstream for summaries only is none of them."""
    upstreams = {name: UpstreamConfig() for name in ("a", "b", "c", "d")}
    models = (ModelConfig(match="m", upstream="b"), ModelConfig(match="n", upstream="a"), ModelConfig(match="o"))
    summary = PolicyConfig(summary=SummaryConfig(upstream="d"))
    config = Config(upstreams=upstreams, defaults=summary, models=models, profiles={"p": PolicyConfig(upstream="c")})

    assert config.list_reachable() == (None, "b", "a", "c")
    assert config.model_copy(update={"allow_header_override": False}).list_reachable() == (None, "b", "a")


def test_the_modes_are_told_with_those_that_differ() -> None:
    """An entry or a profile with the general mode is not named."""
    text = """
    mode: observe
    models: [{match: "gpt-*", mode: enforce}, {match: same}]
    profiles: {half: {mode: enforce, observe_share: 0.5}, none: {mode: enforce, observe_share: 1}, rest: {mode: 'off'}}
    """
    config = load_config(text, environment={})
    told = "gpt-*: enforce; profile half: enforce, 0.5 of sessions observed; profile rest: off"
    assert config.tell_modes() == f"observe; {told}"
    assert load_config(environment={}).tell_modes() == "enforce"


@given(
    workers=st.integers(1, 256),
    requests=st.integers(1, 10_000),
    memory_bytes=st.integers(MIN_MEMORY_BYTES, 2**40),
    held_bytes=st.none() | st.integers(1024, 2**40),
)
def test_workers_together_take_on_what_the_configuration_says(workers, requests, memory_bytes, held_bytes) -> None:
    """Numbers of requests are rounded up, and are never less than a process needs. A single process gets everything."""
    limits = LimitsConfig(
        max_concurrent_requests=requests, max_memory_bytes=memory_bytes, max_held_bytes=held_bytes
    ).divide(workers)
    assert requests <= workers * limits.max_concurrent_requests < requests + workers
    assert MIN_MEMORY_BYTES <= limits.max_memory_bytes <= max(memory_bytes / workers, MIN_MEMORY_BYTES)
    assert (limits.max_held_bytes is None) is (held_bytes is None)
    assert held_bytes is None or 1024 <= (limits.max_held_bytes or 0) <= max(held_bytes / workers, 1024)
    if workers == 1:
        assert limits == LimitsConfig(
            max_concurrent_requests=requests, max_memory_bytes=memory_bytes, max_held_bytes=held_bytes
        )


def test_a_path_stands_with_and_without_a_slash_at_its_end() -> None:
    """Requests are looked up without it."""
    assert CompactionConfig(paths={"/llm/generate/": "chat", "/ask": "messages"}).paths == {
        "/llm/generate": "chat",
        "/ask": "messages",
    }


# An upstream of the configuration: which environment applies to it, and which certificates.

URL = "https://up.test/v1"
PROXIED = {"HTTPS_PROXY": "http://proxy.test:3128"}


def test_certificates_are_those_that_were_read(tmp_path: Path) -> None:
    """If a file changes or disappears, the certificates that were read stay in use."""
    upstream = UpstreamConfig(base_url=URL, ca_file=str(Authority(tmp_path).ca_file))
    Path(str(upstream.ca_file)).unlink()

    assert upstream.tls is not None
    assert upstream.routed_by(PROXIED).tls is upstream.tls
    assert UpstreamConfig(base_url=URL).tls is None


def test_authorities_of_the_environment_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    """OpenSSL skips such files silently."""
    upstream = UpstreamConfig(base_url=URL)
    fault = upstream.routed_by({"SSL_CERT_FILE": str(tmp_path / "missing.pem")}).trust_fault

    assert upstream.trust_fault is None
    assert fault is not None
    assert "missing.pem" in fault
    assert upstream.routed_by({"SSL_CERT_FILE": str(Authority(tmp_path).ca_file)}).trust_fault is None


@pytest.mark.parametrize(
    ("fields", "main", "named"),
    [
        ({}, "client", "none"),
        ({"api_key": "k"}, "key", "key"),
        ({"credential": "none"}, "none", "none"),
        ({"credential": "client"}, "client", "client"),
    ],
)
def test_whose_credential_an_upstream_is_shown(fields: dict[str, Any], main: str, named: str) -> None:
    """A client's credential reaches a named upstream only if the configuration says so. Copies behave the same."""
    upstream = UpstreamConfig(base_url=URL, **fields)
    config = Config(upstream=upstream, upstreams={"other": upstream})

    assert (upstream.shown, config.upstream.shown, config.upstreams["other"].shown) == (main, main, named)
    assert config.routed_by(PROXIED).upstreams["other"].shown == named
    assert config.model_copy().upstreams["other"].shown == named


URLS = (
    "https://api.anthropic.com/v1", "https://api.anthropic.com.example.org/v1", "https://api.openai.com/v1", URL,
    "http://10.0.0.1:8000/v1", "https://10.0.0.1/v1", "http://localhost.example.com/v1", "http://localhost:1/v1",
    "http://127.0.0.9:8000/v1", "http://[::1]/v1",
)  # fmt: skip
FIELDS: tuple[dict[str, Any], ...] = ({}, {"api_key": "k"}, {"credential": "none"}, {"strip_nonces": "off"})
ADDRESSES = ("127.8.9.1:1", "localhost:1", "'[::1]:1'", "0.0.0.0:1", "'[::]:1'", "example.org:1")


def test_what_is_concluded_from_addresses() -> None:
    """Nonces are stripped for servers of other providers. A credential without TLS is bare on its way elsewhere.

    Known providers list their models only to a key. Who can reach the proxy is told, unless a key closes the address.
    """
    told = {}
    for url in URLS:
        ways = [UpstreamConfig(base_url=url, **fields) for fields in FIELDS]
        ways.append(ways[0].named())
        figures = {
            "strips nonces": [one.strips_nonces for one in ways],
            "bares a credential": [one.bares_credential for one in ways],
            "needs a client's key": [one.needs_clients_key for one in ways],
        }
        told[url] = "\n".join(f"{name}: {found}" for name, found in figures.items())
    for listen in ADDRESSES:
        keys = ("", ", client_keys: [k], metrics_path: /m", ", admin_token: t, client_keys: [k]")
        texts = [f"{{listen: {listen}{more}}}" for more in keys]
        for text in (*texts, f"{{metrics_listen: {listen}}}", f"{{metrics_listen: {listen}{keys[2]}}}"):
            told[text] = str(_load(text).open_addresses())
    check_golden("config/addresses", told)


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


def test_a_credential_in_a_name_is_found_unless_it_is_short():
    config = load_config("upstream: {api_key: sk-main-0123456789}\nadmin_token: gpt", environment={})
    assert find_in_name(config, "m-sk-main-0123456789-x") == ("sk-main-0123456789",)
    assert find_in_name(config, "sk-main-0123456789" + "x" * 1000) == ("sk-main-0123456789",)
    assert find_in_name(config, "gpt-5") == ()
    for length, found in ((MIN_NAMED_CHARS, 1), (MIN_NAMED_CHARS - 1, 0)):
        config = load_config(f"upstream: {{api_key: {'k' * length}}}", environment={})
        assert len(find_in_name(config, f"m-{'k' * length}")) == found
