"""All errors of a configuration in one pass: name, line and what is allowed, in plain words."""

import re

import pytest
from support.config import find_problems

FOREIGN = re.compile(
    r"\b(valid (tuple|dictionary|string|integer|number|boolean)|instance of|Input|NoneType|True|False|None|dict|tuple"
    r"|str|int|float|bool|pydantic|Config|argument|arg|Value error|pattern)\b"
)
"""Words of Python, and of the library that validates."""


WRONG = """\
listn: 127.0.0.1:1
listen: 8790
client_keys: [good, "a b", 3]
metrics_listen: h:1
metrics_path: metrics
mode: maybe
allow_header_override: 2
upstream:
  base_url: http://h/v1/chat/completions
  api_key: {a: sk-secret}
  connect_timeout_seconds: soon
upstreams:
  near: {base_url: "http://h:x"}
  far: http://far/v1
  "odd.name": {base_uri: x}
store_ttl_seconds:
prices: [1, 2]
limits:
  max_body_bytes: 1.5k
  max_body_bytes: 17
  drain_seconds: true
defaults: &defaults
  upstream: nowhere
  high_water: 0.3
  low_water: 0.4
  context_window: 512
  tidy: {ansi: 3, jsn: true}
  tools:
    "*": {dedupe: 0}
    "[Rr]ead*":
      max_tool_result_tokens: 3
      tidy: {tables: maybe}
    "": {}
    "(a,b)[c]": {exclude: [3]}
    'say "[key]", größe': {exclud: true}
    "[key]": {"[key]": 1, truncation: none}
    "[Ww]rite": {}
    "x[yz": {}
  summary: {upstream: near, role: nobody, max_tokens: 1}
models:
  - match: gpt-*
    low_water: 0.9
    high_water: 0.5
  - high_water: 2
    summary: {upstream: nobody}
  - <<: *defaults
    match: gpt-4o
    tools: {"[z-a]": {}}
  - 17
profiles:
  ? 1
  : {protect_turns: -1}
  a.b: {"low_water": 0.25, upstream: far}
  c: {low_water: 0.3}
"""

POLICY = (
    "upstream, mode, prices, observe_share, pairing, drop_tools, local_items, context_window, context_windows, "
    "completion_reserve, "
    "economy, cut, high_water, low_water, compact_at_tokens, preserve_system, overflow_strategy, on_exceeded, "
    "tidy, dedupe, max_tool_result_tokens, max_tool_result_bytes, truncation, tools, protect_turns, "
    "keep_user_tokens, anchors, keep_images, sections, truncate_system, keep_recent_steps, max_turns, "
    "max_message_tokens, truncate_users, memory, pin_instruction, instruction_files, summary, count"
)
UPSTREAM = (
    "base_url, api_key, credential, allowed_paths, strip_nonces, prices, cache, cache_seconds, "
    "connect_timeout_seconds, read_timeout_seconds, proxy, ca_file, client_cert_file, client_key_file"
)
TOOL = "max_tool_result_tokens, max_tool_result_bytes, truncation, tidy, dedupe, exclude"
ADDED = "must end before /chat/completions: requests to /v1/X go to base_url/X"
UNCLOSED = "has a [ without its ]; write a literal [ as [[]"

SAID = f"""\
listn (line 1): unknown key; did you mean listen?
listen (line 2): 8790 must be HOST:PORT, with a port from 0 to 65535
client_keys[1] (line 3): must be one word of printable ASCII, without a line break
client_keys[2] (line 3): must be a text: put it in quotes
metrics_path (line 5): 'metrics' must be a path that begins with /
mode (line 6): 'maybe' must be enforce, observe or off
allow_header_override (line 7): 2 must be true or false
upstream.base_url (line 9): 'http://h/v1/chat/completions' {ADDED}
upstream.api_key (line 10): must be one word of printable ASCII, without a line break, or null
upstream.connect_timeout_seconds (line 11): 'soon' must be a number, above 0
upstreams.near.base_url (line 13): 'http://h:x' must be plain ASCII; a port must be from 1 to 65535
upstreams.far (line 14): must be a mapping with the keys {UPSTREAM}
upstreams."odd.name".base_uri (line 15): unknown key; did you mean base_url?
store_ttl_seconds (line 16): null must be a number, above 0
prices (line 17): must be auto, or a mapping of prices
limits.max_body_bytes (line 20): the key appears twice
limits.max_body_bytes (line 20): 17 must be a whole number, 1024 or more
limits.drain_seconds (line 21): true must be a number, 0 or more
defaults.upstream (line 23): 'nowhere' is not one of upstreams (near, odd.name, far)
defaults.low_water (line 25): 0.4 must be below high_water, 0.3
defaults.context_window (line 26): 512 must be auto, or at least 1024 tokens
defaults.tidy.ansi (line 27): 3 must be true or false
defaults.tidy.jsn (line 27): unknown key; did you mean json?
defaults.tools."*".dedupe (line 29): 0 must be true, false or null
defaults.tools."[Rr]ead*" (line 30): never matches: "*" above it matches first
defaults.tools."[Rr]ead*".max_tool_result_tokens (line 31): 3 must be a whole number, 64 or more, or null
defaults.tools."[Rr]ead*".tidy.tables (line 32): 'maybe' must be true or false
defaults.tools."" (line 33): '' must be a glob of printable characters that is not empty
defaults.tools."(a,b)[c]" (line 34): never matches: "*" above it matches first
defaults.tools."(a,b)[c]".exclude[0] (line 34): 3 must be a text: put it in quotes
defaults.tools."say \\"[key]\\", größe" (line 35): never matches: "*" above it matches first
defaults.tools."say \\"[key]\\", größe".exclud (line 35): unknown key; did you mean exclude?
defaults.tools."[key]" (line 36): never matches: "*" above it matches first
defaults.tools."[key]"."[key]" (line 36): unknown key; known here: {TOOL}
defaults.tools."[key]".truncation (line 36): 'none' must be salient, head_tail or null
defaults.tools."[Ww]rite" (line 37): never matches: "*" above it matches first
defaults.tools."x[yz" (line 38): 'x[yz' {UNCLOSED}
defaults.summary.role (line 39): 'nobody' must be auto, user, system, assistant or pair
defaults.summary.max_tokens (line 39): 1 must be auto, or a whole number of tokens, at least 64
models[0].low_water (line 42): 0.9 must be below high_water, 0.5
models[1].high_water (line 44): 2 must be auto, or a number above 0 and at most 1
models[1] (line 44): match is required
models[1].summary.upstream (line 45): 'nobody' is not one of upstreams (near, odd.name, far)
models[2].match (line 47): never matches: "gpt-*" above it matches first
models[2].tools."[z-a]" (line 48): '[z-a]' never matches: one of its [...] contains no character
models[3] (line 49): must be a mapping with the keys {POLICY}, match
profiles.1.protect_turns (line 52): -1 must be a whole number, 0 or more
profiles.c.low_water (line 54): 0.3 must be below high_water, 0.3
"""


def test_one_pass_tells_everything() -> None:
    """Errors of every kind are in the order of their lines, each once."""
    assert find_problems(WRONG) == SAID.splitlines()


def test_no_word_is_pythons_or_the_validators() -> None:
    """Values and names are exempt."""
    for line in find_problems(WRONG, "limits.drain_seconds=[", "defaults=", "models=3", TRIMTAB_AUTOCOMPACT_PCT="x"):
        assert not FOREIGN.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", line)), line


KEYS = ["[Rr]ead*", "(a)", "a,b", "a.b", "it's", 'say "x"', "größe", "1", "-1", "0x10", "null", "true", "2024-13-45",
        "function-after[f(), str]", "match", "[key]", "~", "<", "a: b", "# c", "x" * 90]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("place", ["defaults.tools", "profiles", "upstreams"])
def test_any_key_is_named_with_its_line(place: str, key: str) -> None:
    """The key may have any characters, also those that look like something else. Only its value is wrong."""
    written = "'" + key.replace("'", "''") + "'"
    section, _, inner = place.partition(".")
    head = f"{section}:\n" + (f"  {inner}:\n" if inner else "")
    (problem,) = find_problems(f"{head}    {written}:\n\n      nope: 1\n")
    line = head.count("\n") + 3

    shown = key if re.fullmatch(r"[\w-]{1,80}", key) else '"' + key.replace('"', '\\"') + '"'
    shown = shown if len(key) <= 80 else f'"{key[:80]}…"'
    assert problem.startswith(f"{place}.{shown}.nope (line {line}): unknown key; known here: ")


def test_a_value_from_elsewhere_has_no_line() -> None:
    """The file's own value at that place is not wrong. A key that no setting changed keeps its line."""
    text = (
        "listen: h:1\nupstream:\n  base_url: http://h\n  read_timeout_seconds: 0\ndefaults:\n  tools: {a: {dedupe: 3}}"
    )
    assert find_problems(text, "listen=h", "defaults.tools={a: {dedupe: 4}, a: {}}", TRIMTAB_UPSTREAM="h") == [
        "defaults.tools.a: the key appears twice",
        "listen: 'h' must be HOST:PORT, with a port from 0 to 65535",
        "upstream.base_url (TRIMTAB_UPSTREAM): 'h' must be an http:// or https:// URL with a host",
        "defaults.tools.a.dedupe: 4 must be true, false or null",
        "upstream.read_timeout_seconds (line 4): 0 must be a number, above 0",
    ]


def test_each_item_of_a_list_of_globs_is_named() -> None:
    """Each wrong glob is named by its index. Right ones are not named."""
    assert find_problems('defaults: {tools: {"x*": {exclude: ["a[", "b", "", 4, "[z-a]"]}}}') == [
        f"defaults.tools.\"x*\".exclude[0] (line 1): 'a[' {UNCLOSED}",
        "defaults.tools.\"x*\".exclude[2] (line 1): '' must be a glob of printable characters that is not empty",
        'defaults.tools."x*".exclude[3] (line 1): 4 must be a text: put it in quotes',
        "defaults.tools.\"x*\".exclude[4] (line 1): '[z-a]' never matches: one of its [...] contains no character",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("admin_token: 123456", "admin_token (line 1): must be a text: put it in quotes"),
        ("client_keys: [true]", "client_keys[0] (line 1): must be a text: put it in quotes"),
        ("models: [{match: 4.5}]", "models[0].match (line 1): 4.5 must be a text: put it in quotes"),
        ("models: [{match: 2024-01-01}]", "models[0].match (line 1): 2024-01-01 must be a text: put it in quotes"),
        ("upstream: {api_key: 1}", "upstream.api_key (line 1): must be a text: put it in quotes"),
        ("defaults: {upstream: 1}", "defaults.upstream (line 1): 1 must be a text: put it in quotes"),
        ("listen: 8790", "listen (line 1): 8790 must be HOST:PORT, with a port from 0 to 65535"),
        ("store: 1", "store (line 1): 1 must be memory, sqlite, sqlite:///path or redis://host:port/db"),
        ("metrics_path: 1", "metrics_path (line 1): 1 must be a path that begins with /"),
        ("upstream: {ca_file: 1}", "upstream.ca_file (line 1): 1 must be the path of a PEM file, or null"),
        (
            "models: [{match: [4]}]",
            "models[0].match (line 1): must be a glob of printable characters that is not empty",
        ),
        ("mode: 1", "mode (line 1): 1 must be enforce, observe or off"),
    ],
)
def test_a_number_in_the_place_of_text_wants_quotes(text: str, problem: str) -> None:
    """The message says so if the value would be right in quotes. Otherwise it says what is allowed."""
    assert find_problems(text) == [problem]
