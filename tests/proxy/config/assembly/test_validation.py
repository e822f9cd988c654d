"""Errors in a configuration are described in sentences."""

import traceback

import pytest
from support.config import find_problems

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config

SECRET = "sk-proj-very-secret-0123456789"  # noqa: S105 - planted


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("listen: 8790", "listen (line 1): 8790 must be HOST:PORT, with a port from 0 to 65535"),
        ("\nlisten: ':80'", "listen (line 2): ':80' must be HOST:PORT, with a port from 0 to 65535"),
        ("listen: h:65536", "listen (line 1): 'h:65536' must be HOST:PORT, with a port from 0 to 65535"),
        ("mode: on", "mode (line 1): 'on' must be enforce, observe or off"),
        (
            "store: redis",
            "store (line 1): 'redis' must be memory, sqlite, sqlite:///path or redis://host:port/db",
        ),
        ("tenant: 'header:'", "tenant (line 1): 'header:' must be authorization, or header:NAME"),
        (
            "metrics_path: /v1/x",
            "metrics_path (line 1): '/v1/x' must not begin with /v1 or /trimtab, nor end like /chat/completions",
        ),
        (
            "metrics_path: /a/responses",
            "metrics_path (line 1): '/a/responses' must not begin with /v1 or /trimtab, nor end like /chat/completions",
        ),
        (
            "metrics_path: /%6d",
            "metrics_path (line 1): '/%6d' must be plain ASCII without a space or any of % ? #",
        ),
        ("listen: 'h:²'", "listen (line 1): 'h:²' must be HOST:PORT, with a port from 0 to 65535"),
        (
            "defaults: {context_window: ²²²²}",
            "defaults.context_window (line 1): '²²²²' must be auto, or a whole number of tokens",
        ),
        (
            "upstream: {base_url: 'http://[::1'}",
            "upstream.base_url (line 1): 'http://[::1' must be plain ASCII; a port must be from 1 to 65535",
        ),
        ("metrics_path: metrics", "metrics_path (line 1): 'metrics' must be a path that begins with /"),
        (
            "upstream:\n  base_url: ftp://h",
            "upstream.base_url (line 2): 'ftp://h' must be an http:// or https:// URL with a host",
        ),
        (
            "upstream:\n\n  connect_timeout_seconds: 0",
            "upstream.connect_timeout_seconds (line 3): 0 must be a number, above 0",
        ),
        (
            "limits:\n  max_body_bytes: 1.5k",
            "limits.max_body_bytes (line 2): '1.5k' must be a whole number, 1024 or more",
        ),
        (
            "defaults: {context_window: 100}",
            "defaults.context_window (line 1): 100 must be auto, or at least 1024 tokens",
        ),
        (
            "defaults: {context_window: 8k}",
            "defaults.context_window (line 1): '8k' must be auto, or a whole number of tokens",
        ),
        (
            "defaults: {context_window: true}",
            "defaults.context_window (line 1): true must be auto, or a whole number of tokens",
        ),
        (
            "defaults: {high_water: 80}",
            "defaults.high_water (line 1): 80 must be auto, or a number above 0 and at most 1",
        ),
        (
            "defaults: {low_water: true}",
            "defaults.low_water (line 1): true must be auto, or a number above 0 and at most 1",
        ),
        (
            "defaults: {high_water: 0}",
            "defaults.high_water (line 1): 0 must be auto, or a number above 0 and at most 1",
        ),
        ("defaults: {anchors: []}", "defaults.anchors (line 1): must be auto, or a number from 0 to 1"),
        (
            "defaults: {anchors: -0.1}",
            "defaults.anchors (line 1): -0.1 must be auto, or a number from 0 to 1",
        ),
        (
            "defaults: {anchors: .nan}",
            "defaults.anchors (line 1): nan must be auto, or a number from 0 to 1",
        ),
        (
            "defaults:\n  summary:\n    max_tokens: 1",
            "defaults.summary.max_tokens (line 3): 1 must be auto, or a whole number of tokens, at least 64",
        ),
        (
            "defaults: {on_exceeded: drop}",
            "defaults.on_exceeded (line 1): 'drop' must be error, forward or truncate",
        ),
        ("models:\n- match: a\n- low_water: 0.1", "models[1] (line 3): match is required"),
        (
            "models:\n- match: a\n- match: b\n  low_water: x",
            "models[1].low_water (line 4): 'x' must be auto, or a number above 0 and at most 1",
        ),
        ("prices: [1]", "prices (line 1): must be auto, or a mapping of prices"),
        (
            "profiles:\n  p:\n    protect_turns: -1",
            "profiles.p.protect_turns (line 3): -1 must be a whole number, 0 or more",
        ),
        ("listn: h:1", "listn (line 1): unknown key; did you mean listen?"),
        ("upstream: {base_uri: x}", "upstream.base_uri (line 1): unknown key; did you mean base_url?"),
        ("models:\n- match: a\n  high_watr: 1", "models[0].high_watr (line 3): unknown key; did you mean high_water?"),
        (
            "profiles: {p: {summary: {modell: m}}}",
            "profiles.p.summary.modell (line 1): unknown key; did you mean model?",
        ),
        (
            "limits:\n  qqq: 1",
            (
                "limits.qqq (line 2): unknown key; known here: max_body_bytes, max_concurrent_requests,"
                " max_memory_bytes, max_held_bytes, max_plan_seconds, client_silence_seconds, shutdown_delay_seconds,"
                " drain_seconds"
            ),
        ),
        (
            "upstream: {api_key: '${KEY}'}",
            "upstream.api_key (line 1): ${KEY} is not set in the environment and has no default",
        ),
        (
            "models: [{match: '${M}'}]",
            "models[0].match (line 1): ${M} is not set in the environment and has no default",
        ),
        ("listen: h:1\nmode: off\nlisten: h:2", "listen (line 3): the key appears twice"),
        ("models:\n- match: a\n  match: b", "models[0].match (line 3): the key appears twice"),
        ("limits: {drain_seconds: 1, drain_seconds: 2}", "limits.drain_seconds (line 1): the key appears twice"),
        ("- a", "the configuration must be a mapping of keys to values"),
        ("text", "the configuration must be a mapping of keys to values"),
        ("a: [", "not valid YAML: line 1: expected the node content, but found '<stream end>'"),
    ],
)
def test_each_mistake_is_named_with_its_place_and_what_is_allowed(text: str, problem: str) -> None:
    """One sentence has the path, the line if the file has one, the value, and what is allowed."""
    assert find_problems(text) == [problem]


@pytest.mark.parametrize(
    "text",
    [
        "upstream: {base_url: 'http://h:port/v1'}",
        "upstream: {base_url: 'http://h:99999/v1'}",
        "upstream: {base_url: 'http://h h/v1'}",
        "upstream: {base_url: 'http://h/v1?'}",
        "upstream: {base_url: 'http://[::1/v1'}",
        "upstream: {base_url: 'http://u@h/v1'}",
        "upstream: {base_url: 'h:80/v1'}",
        "upstream: {base_url: 'http://h/v1#x'}",
        'upstream: {api_key: "key\\n"}',
        "defaults: {protect_turns: true}",
    ],
)
def test_what_could_not_work_later_is_refused_now(text: str) -> None:
    """Examples: a URL or a key with which every request would fail, and a boolean in the place of a number."""
    assert len(find_problems(text)) == 1


def test_every_mistake_is_named_at_once() -> None:
    """The file, the environment and the settings may all have errors."""
    text = "listn: h:1\nmode: maybe\nupstream: {api_key: '${KEY}', base_uri: x}\ndefaults: {high_water: 2}"

    assert [line.split(":")[0] for line in find_problems(text, "x", "mode.a=1", TRIMTAB_AUTOCOMPACT_PCT="0")] == [
        "'x'",
        "mode.a",
        "TRIMTAB_AUTOCOMPACT_PCT",
        "listn (line 1)",
        "mode (line 2)",
        "upstream.api_key (line 3)",
        "upstream.base_uri (line 3)",
        "defaults.high_water (line 4)",
    ]


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("listen", "'listen': a setting must be dotted.key=value"),
        ("=x", "'': a setting must be dotted.key=value"),
        ("a..b=1", "'a..b': a setting must be dotted.key=value"),
        ("listen.x=1", "listen.x: listen is not a section"),
        ("limit.x=1", "limit: unknown key; did you mean limits?"),
        ("listen=[", "listen: '[' must be HOST:PORT, with a port from 0 to 65535"),
        ("listen=h", "listen: 'h' must be HOST:PORT, with a port from 0 to 65535"),
        ("limits.max_body_bytes=", "limits.max_body_bytes: null must be a whole number, 1024 or more"),
        ("listen=2024-13-45", "listen: '2024-13-45' must be HOST:PORT, with a port from 0 to 65535"),
    ],
)
def test_a_wrong_setting_is_named(setting: str, problem: str) -> None:
    """The message has its key. It has a line only if the file has that key, too."""
    text = "listen: h:1" if setting.startswith("listen.") else ""

    assert find_problems(text, setting) == [problem]


@pytest.mark.parametrize(
    "text",
    [
        f"upstream: {{api_key: [{SECRET}]}}",
        f"upstream: {{api_key: {{a: {SECRET}}}}}",
        f"upstream: [{{api_key: {SECRET}}}]",
        f"upstreams: [{{api_key: {SECRET}}}]",
        f"upstreams: {{b: {{base_url: x, api_key: {SECRET}}}}}",
        f"defaults: {{upstream: {{api_key: {SECRET}}}}}",
        f"upstream: {{apikey: {SECRET}}}",
        f"api_key: {SECRET}",
        f"upstream: {{base_url: 'https://user:{SECRET}@h/v1'}}",
        f"upstream:\n  api_key: {SECRET}\n  api_key: {SECRET}",
        f"upstream: {{api_key: {SECRET}",
        f"client_keys: {SECRET}",
        f"client_keys: [{SECRET} x]",
        f"client_keys: [a, [{SECRET}]]",
        f"client_keys: {{{SECRET}: {SECRET}}}",
        f"client_keys: {{a: {SECRET} x}}",
        f"client_keys: {{a: [{SECRET}]}}",
        f"client_keys: {{a: {SECRET}, b: {SECRET}}}",
        f"client_keys: {{a: {{key: [{SECRET}]}}}}",
        f"client_keys: {{a: {{key_file: {SECRET}}}}}",
        f"client_keys: {{a: {{{SECRET}: 1}}}}",
        f"client_keys: {{a: {{{SECRET}: 1, key: x}}}}",
        f"client_keys: {{a: {{key: {SECRET}, max_concurrent_requests: {SECRET}}}}}",
        f"client_key: [{SECRET}]",
        f"admin_token: [{SECRET}]",
        f"admin_token: '{SECRET} x'",
        f"admin_token:\n  - {SECRET}",
        f"upstream: {{api_key: *{SECRET}}}",
        f"upstream: {{api_key: !{SECRET} x}}",
        f"upstream: {{api_key: !e!{SECRET} x}}",
        f"admin_token: !!int {SECRET}",
        f"admin_token: !!bool {SECRET}",
        f"admin_token: !!timestamp {SECRET}",
        f"store: redis://:{SECRET}",
        f"store: redis://user:{SECRET}@h:x/0",
        f"store: redis://h:x/0?password={SECRET}",
        f"upstream: {{base_url: 'https://h/v1?key={SECRET}'}}",
    ],
)
def test_a_secret_is_never_shown(text: str) -> None:
    """If a key is in the wrong place or form, only its path is shown. A traceback does not show it either."""
    with pytest.raises(ConfigError) as caught:
        load_config(text, environment={})

    assert str(caught.value)
    assert SECRET[:8] not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None


def test_a_secret_from_the_environment_is_never_shown() -> None:
    """The same holds for a secret from a variable."""
    problems = find_problems("upstreams: [{api_key: '${KEY}'}]", KEY=SECRET)

    assert problems
    assert not [line for line in problems if SECRET[:8] in line]


def test_a_long_value_is_cut() -> None:
    """The sentence stays readable."""
    (problem,) = find_problems("mode: " + "x" * 5000)

    assert len(problem) < 200
    assert "…" in problem
