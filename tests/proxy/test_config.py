"""The configuration: what is read, and what wins."""

import re
from pathlib import Path

import orjson
import pytest
from pydantic import BaseModel

from proxy.config import Config, PolicyConfig, UpstreamConfig
from proxy.config_errors import Document, name_path
from proxy.config_load import load_config
from proxy.errors import ConfigError
from rules.policy import OnExceeded, OverflowStrategy, Policy
from rules.truncate import Budget

EXAMPLE = Path(__file__).parents[2] / "config.example.yaml"


def _load(text: str = "", *settings: str, **environment: str) -> Config:
    return load_config(text, settings=settings, environment=environment)


def _keys(model: type[BaseModel], prefix: str = "") -> set[str]:
    """Every key of a section and of the sections in it, dotted."""
    found: set[str] = set()
    for name, field in model.model_fields.items():
        found.add(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found |= _keys(field.annotation, f"{prefix}{name}.")
    return found


def test_the_example_is_the_defaults() -> None:
    """The file shows every value that holds without it."""
    assert _load(EXAMPLE.read_text()) == _load()


def test_the_example_names_every_key_with_a_comment() -> None:
    """Nothing is to be found only in the source, and no key stands without a word on it."""
    text = EXAMPLE.read_text()
    lines = text.splitlines()
    places = {name_path(path): line for path, line in Document.parse(text).lines.items()}

    assert set(places) == _keys(Config)
    assert [name for name, line in places.items() if not re.search(r"\S\s+# \S", lines[line - 1])] == []


def test_the_policies_that_the_example_only_mentions_are_valid() -> None:
    """The commented lines can be taken in as they stand."""
    text = EXAMPLE.read_text().replace("models: []", "models:").replace("profiles: {}", "profiles:")
    config = _load(re.sub(r"^#  ", "  ", text, flags=re.MULTILINE))

    assert (len(config.models), list(config.profiles)) == (1, ["router"])


@pytest.mark.parametrize("text", ["", "\n# nothing\n", "{}", "null", "---\n"])
def test_every_key_has_a_default(text: str) -> None:
    """An empty file is a configuration."""
    assert _load(text) == Config()


def test_the_schema_knows_every_key_and_refuses_others() -> None:
    """What editors read agrees with what is accepted."""
    schema = orjson.loads(orjson.dumps(Config.model_json_schema()))

    sections = {"": schema, **schema["$defs"]}
    objects = {name: section for name, section in sections.items() if "properties" in section}
    assert all(section["additionalProperties"] is False for section in objects.values())
    assert set(schema["properties"]) == set(Config.model_fields)
    assert set(schema["$defs"]["PolicyConfig"]["properties"]) == set(PolicyConfig.model_fields)
    assert "required" not in schema
    assert all(
        "description" in item for item in schema["$defs"]["PolicyConfig"]["properties"].values() if "$ref" not in item
    )


def test_variables_are_filled_in_everywhere() -> None:
    """In sections, lists and beside other text; a default stands in for what is not set."""
    text = """
    upstream: {base_url: "https://${HOST}:${PORT:-8443}/v1", api_key: "${KEY:-}"}
    models: [{match: "${MODEL}", protect_turns: "${TURNS}", context_window: "${WINDOW:-32768}"}]
    profiles: {x: {low_water: "${LOW:-0.5}"}}
    """
    config = _load(text, HOST="h", MODEL="qwen*", TURNS="3")

    assert config.upstream == UpstreamConfig(base_url="https://h:8443/v1", api_key=None)
    assert [(item.match, item.protect_turns, item.context_window) for item in config.models] == [("qwen*", 3, 32768)]
    assert config.profiles["x"].low_water == 0.5


def test_only_braced_names_are_variables() -> None:
    """A dollar sign alone is text, and what a variable holds is not filled in again."""
    config = _load('models: [{match: "$KEY ${KEY} ${}"}]', KEY="${KEY}")

    assert config.models[0].match == "$KEY ${KEY} ${}"


def test_settings_lie_over_the_file() -> None:
    """Each writes one key, nested or new; its value is YAML; the last of several wins."""
    settings = (
        "defaults.summary.model=m",
        "limits.max_body_bytes=2048",
        "store=memory",
        "listen=[::1]:9",
        "listen=h:1",
    )
    upstream = "upstreams.b={base_url: 'http://b', api_key: null}"
    config = _load("limits: {drain_seconds: 1}\ndefaults: {protect_turns: 5}", *settings, upstream)

    assert (config.defaults.protect_turns, config.defaults.summary.model) == (5, "m")
    assert (config.limits.max_body_bytes, config.limits.drain_seconds, config.listen) == (2048, 1, "h:1")
    assert config.upstreams == {"b": UpstreamConfig(base_url="http://b")}


@pytest.mark.parametrize("mode", ["enforce", "observe", "off"])
def test_every_mode_can_be_written_without_quotes(mode: str) -> None:
    """YAML reads a bare `off` as false; the configuration reads what was meant."""
    assert _load(f"mode: {mode}").mode == mode
    assert _load("", f"mode={mode}").mode == mode


def test_environment_wins_over_the_file_and_settings_over_both() -> None:
    """TRIMTAB_UPSTREAM and TRIMTAB_LISTEN stand for one key each; an empty one for none."""
    text = "upstream: {base_url: 'http://file', read_timeout_seconds: 5}\nlisten: 127.0.0.1:1"
    environment = {"TRIMTAB_UPSTREAM": "http://env/v1/", "TRIMTAB_LISTEN": "[::1]:2"}

    assert _load(text, TRIMTAB_UPSTREAM="", TRIMTAB_LISTEN="") == _load(text)
    assert _load(text, **environment).upstream == UpstreamConfig(base_url="http://env/v1", read_timeout_seconds=5)
    assert _load(text, **environment).listen == "[::1]:2"
    assert _load(text, "listen=127.0.0.1:3", "upstream.base_url=http://set", **environment) == _load(
        text, "listen=127.0.0.1:3", "upstream.base_url=http://set"
    )


def test_autocompact_percent_overrides_high_water_everywhere() -> None:
    """Each low water keeps its share of it, in the defaults, the models and the profiles."""
    text = """
    defaults: {high_water: 0.8, low_water: 0.4}
    models: [{match: a, low_water: 0.6}, {match: b, high_water: 0.5}]
    profiles: {p: {high_water: 0.9, low_water: 0.3}}
    """
    config = _load(text, TRIMTAB_AUTOCOMPACT_PCT="60")
    policies = [config.policy_for("x"), config.policy_for("a"), config.policy_for("b"), config.policy_for("x", "p")]

    assert [policy.high_water for policy in policies] == [0.6] * 4
    assert [policy.low_water for policy in policies] == pytest.approx([0.3, 0.45, 0.48, 0.2])
    assert _load(text, TRIMTAB_AUTOCOMPACT_PCT="") == _load(text)


@pytest.mark.parametrize("percent", ["0", "101", "-5", "80%", "0.8", "x", "²", " 80"])
def test_an_odd_percentage_is_refused(percent: str) -> None:
    """Only whole numbers from 1 to 100, whatever else a digit may be."""
    with pytest.raises(ConfigError, match=r"TRIMTAB_AUTOCOMPACT_PCT: .* must be a whole number from 1 to 100"):
        _load(TRIMTAB_AUTOCOMPACT_PCT=percent)


POLICIES = """
upstreams: {local: {base_url: "http://127.0.0.1:8080/v1"}}
defaults: {protect_turns: 7, completion_reserve: 100, summary: {model: cheap, min_steps: 9}}
models:
  - {match: "qwen3*", context_window: 32768, summary: {min_steps: 2}}
  - {match: "qwen*", context_window: 16000, upstream: local}
  - {match: "[ab]?", high_water: 0.7}
profiles: {router: {context_window: 8000, summary: {upstream: local}}}
"""


@pytest.mark.parametrize(
    ("model", "profile", "changes", "summary"),
    [
        ("gpt-5", None, {}, {}),
        ("qwen3-8b", None, {"context_window": 32768}, {"min_steps": 2}),
        ("qwen2", None, {"context_window": 16000, "upstream": "local"}, {}),
        ("QWEN3", None, {}, {}),
        ("a1", None, {"high_water": 0.7}, {}),
        ("qwen3-8b", "router", {"context_window": 8000}, {"upstream": "local"}),
    ],
)
def test_the_first_match_wins_and_changes_only_what_it_names(
    model: str, profile: str | None, changes: dict[str, object], summary: dict[str, object]
) -> None:
    """Over the configured defaults, the summary's own keys included; a profile goes before any match."""
    config = _load(POLICIES)
    base = config.defaults
    expected = base.model_copy(update={**changes, "summary": base.summary.model_copy(update=summary)})

    assert config.policy_for(model, profile).model_dump() == expected.model_dump()


def test_matches_profiles_and_upstreams_are_found_by_name() -> None:
    """No match is None, no such profile or upstream a KeyError; no name is the main upstream."""
    config = _load(POLICIES)

    assert [entry and entry.match for entry in map(config.match_for, ("qwen3", "qwen", "x"))] == [
        "qwen3*",
        "qwen*",
        None,
    ]
    assert (config.upstream_for(None), config.upstream_for("local")) == (config.upstream, config.upstreams["local"])
    with pytest.raises(KeyError):
        config.policy_for("qwen3", "nope")


def test_a_policy_is_what_the_rules_need() -> None:
    """Every number arrives under its name; a window that is not known is 128,000 tokens."""
    text = """{context_window: 9000, completion_reserve: 10, high_water: 0.7, low_water: 0.3, overflow_strategy: prune,
    on_exceeded: forward, max_tool_result_tokens: 99, max_tool_result_bytes: 999, protect_turns: 1, keep_user_tokens: 5,
    summary: {max_tokens: 77, min_steps: 3}}"""

    assert _load("defaults: " + text).defaults.to_policy() == Policy(
        9000, 10, 0.7, 0.3, OverflowStrategy.PRUNE, OnExceeded.FORWARD, Budget(99, 999), 1, 5, 77, 3
    )
    assert PolicyConfig().to_policy() == Policy()


@pytest.mark.parametrize(
    ("listen", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.8.9.1:1", True),
        ("localhost:1", True),
        ("'[::1]:1'", True),
        ("0.0.0.0:1", False),
        ("'[::]:1'", False),
        ("192.168.0.2:1", False),
        ("example.org:1", False),
    ],
)
def test_who_can_reach_the_proxy(listen: str, *, loopback: bool) -> None:
    """Only an address of this machine itself is loopback; a name that we do not know is not."""
    assert _load(f"listen: {listen}").listens_on_loopback is loopback


def test_the_process_s_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no environment is given, the process's own is read."""
    monkeypatch.setenv("TRIMTAB_UPSTREAM", "http://from-env/v1")

    assert load_config().upstream.base_url == "http://from-env/v1"
