"""Keys of the configuration that contradict each other."""

import pytest
from support.config import find_problems

AGAINST_KEY = "contradicts api_key, which is never sent then; remove one of the two"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "defaults: {low_water: 0.9, high_water: 0.8}",
            "defaults.low_water (line 1): 0.9 must be below high_water, 0.8",
        ),
        (
            "defaults: {low_water: 1}",
            "defaults.low_water (line 1): 1.0 must be below 1.0, the whole room, because a cut would remove nothing",
        ),
        (
            "{defaults: {low_water: 0.4}, models: [{match: a, high_water: 0.4}]}",
            "models[0].high_water (line 1): 0.4 must be above low_water, 0.4",
        ),
        ("defaults: {upstream: b}", "defaults.upstream (line 1): 'b' is not one of upstreams (none)"),
        (
            "upstreams: {a: {base_url: 'http://a'}}\nprofiles: {p: {summary: {upstream: b}}}",
            "profiles.p.summary.upstream (line 2): 'b' is not one of upstreams (a)",
        ),
        (
            "{listen: 'h:1', metrics_listen: 'h:1'}",
            "metrics_listen (line 1): must differ from listen; with null, listen serves both",
        ),
        ("workers: 5", "workers (line 1): 5 workers need limits.max_memory_bytes of at least 2684354560"),
        ("upstream: {credential: key}", "upstream.credential (line 1): key needs api_key too"),
        (
            "upstreams: {a: {base_url: 'http://a', credential: client, api_key: sk-PLANTED}}",
            f"upstreams.a.credential (line 1): client {AGAINST_KEY}",
        ),
        (
            "{dashboard: {keep_text: true}, client_keys: [a]}",
            (
                "dashboard.keep_text (line 1): needs admin_token: else every client with a key could read the text of"
                " the others"
            ),
        ),
        (
            "{dashboard: {keep_text: true}, listen: '0.0.0.0:8790', metrics_listen: '127.0.0.1:1'}",
            "dashboard.keep_text (line 1): needs admin_token: else other machines could read the text of conversations",
        ),
        (
            "{dashboard: {keep_text: true}, metrics_listen: '0.0.0.0:8791'}",
            "dashboard.keep_text (line 1): needs admin_token: else other machines could read the text of conversations",
        ),
        ("models: [{match: '*'}, {match: a}]", 'models[1].match (line 1): never matches: "*" above it matches first'),
    ],
)
def test_a_contradiction_is_named_at_one_of_the_two(text: str, problem: str) -> None:
    """It is the key that is easier to change: the one that the section sets itself."""
    assert find_problems(text) == [problem]


@pytest.mark.parametrize(
    "text",
    [
        "{listen: 'h:0', metrics_listen: 'h:0'}",
        "workers: 4",
        "dashboard: {keep_text: true}",
        "{dashboard: {keep_text: true}, listen: '0.0.0.0:8790', client_keys: [a], admin_token: t}",
        "{dashboard: {enabled: false, keep_text: true}, client_keys: [a]}",
        "{workers: 256, limits: {max_memory_bytes: 137438953472}}",
        "{workers: auto, limits: {max_memory_bytes: 536870912}}",
        "{defaults: {low_water: 0.79, high_water: 0.8}}",
        "{defaults: {low_water: 0.99}}",
        "{defaults: {high_water: 0.01}}",
        "{defaults: {low_water: auto}, profiles: {p: {high_water: auto}}}",
        "{upstreams: {b: {base_url: 'http://b'}}, defaults: {upstream: b}}",
        "{models: [{match: a}, {match: '*'}]}",
    ],
    ids=[
        "port 0 is another one each time",
        "memory for four",
        "text on this machine only",
        "text for who has the token",
        "no text without a dashboard",
        "memory for all",
        "auto takes what there is memory for",
        "low water below high water",
        "a high water above it is found",
        "a low water below it is found",
        "both are found",
        "an upstream that is there",
        "narrow first",
    ],
)
def test_what_does_not_contradict_is_accepted(text: str) -> None:
    """These values are close to contradictions."""
    assert find_problems(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{listen: 'h:1', metrics_listen: h}", ["metrics_listen"]),
        ("{listen: h, metrics_listen: h}", ["listen", "metrics_listen"]),
        ("{defaults: {high_water: x, low_water: 0.9}, models: [{match: a, low_water: 0.85}]}", ["defaults.high_water"]),
        ("{defaults: {high_water: x, low_water: 0.9}, models: [{match: a, high_water: 0.1}]}",
         ["defaults.high_water", "models[0].high_water"]),
        ("{defaults: [], models: [{match: a, low_water: 0.9}]}", ["defaults"]),
        ("{upstreams: [], defaults: {upstream: b}}", ["upstreams"]),
        ("{upstreams: {b: 3}, defaults: {upstream: b}}", ["upstreams.b"]),
        ("{upstreams: {b: {base_url: x}}, defaults: {upstream: b}}", ["upstreams.b.base_url"]),
        ("{defaults: {upstream: '${B}'}}", ["defaults.upstream"]),
        ("{upstream: {credential: key, api_key: '${B}'}}", ["upstream.api_key"]),
        ("{upstream: {credential: key, api_key: ''}}", ["upstream.api_key"]),
        ("{upstream: {credential: none, api_key: [1]}}", ["upstream.api_key"]),
        ("{defaults: {low_water: '${B}', high_water: 0.1}}", ["defaults.low_water"]),
        ("{models: [{match: 3}, {match: '*'}, {match: a}]}", ["models[0].match", "models[2].match"]),
        ("{models: [7, {match: '*'}, {match: a}]}", ["models[0]", "models[2].match"]),
        ("{models: {match: '*'}, profiles: {a: {low_water: 0.9, high_water: 0.8}}}",
         ["models", "profiles.a.low_water"]),
        ("{client_keys: ['${A}', 'b c'], listen: h}", ["client_keys[0]", "client_keys[1]", "listen"]),
        ("{admin_token: {PLANTED: 1, PLANTED: 2}}", ["admin_token", "admin_token"]),
        ("{defaults: {low_water: 1}, models: [{match: a, protect_turns: 1}, {match: b}], profiles: {p: {}}}",
         ["defaults.low_water"]),
    ],
)  # fmt: skip
def test_a_check_of_two_keys_needs_both(text: str, expected: list[str]) -> None:
    """If one key is wrong by itself, the check is skipped. Its error is not reported for the other key, or twice."""
    problems = find_problems(text)
    assert sorted(line.partition(" ")[0] for line in problems) == sorted(expected), problems
