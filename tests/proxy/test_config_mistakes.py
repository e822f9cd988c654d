"""Every mistake of a configuration in one pass: its name, its line, and what would do, in plain words."""

import re

import pytest

from proxy.config_load import load_config
from proxy.errors import ConfigError

FOREIGN = re.compile(
    r"\b(valid (tuple|dictionary|string|integer|number|boolean)|instance of|Input|NoneType|True|False|None|dict|tuple"
    r"|str|int|float|bool|pydantic|Config|argument|arg|Value error|pattern)\b"
)
"""Words of Python's, and of the library that validates."""


def _problems(text: str, *settings: str, **environment: str) -> list[str]:
    """The lines of the error; none where the text is accepted."""
    try:
        load_config(text, settings=settings, environment=environment)
    except ConfigError as error:
        return str(error).splitlines()
    return []


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
    "upstream, context_window, completion_reserve, high_water, low_water, overflow_strategy, on_exceeded, tidy, dedupe,"
    " max_tool_result_tokens, max_tool_result_bytes, truncation, tools, protect_turns, keep_user_tokens, summary, count"
)
TOOL = "max_tool_result_tokens, max_tool_result_bytes, truncation, tidy, dedupe, exclude"
ADDED = "must end before /chat/completions: requests to /v1/X go to base_url/X"
UNCLOSED = "has a [ that no ] closes; a literal one is written [[]"

SAID = f"""\
listn (line 1): unknown key; did you mean listen?
listen (line 2): 8790 must be HOST:PORT, the port 0 to 65535
client_keys[1] (line 3): must be one word of printable ASCII, without a line break
client_keys[2] (line 3): must be one word of printable ASCII, without a line break
metrics_path (line 5): 'metrics' must be a path that begins with /
mode (line 6): 'maybe' must be enforce, observe or off
allow_header_override (line 7): 2 must be true or false
upstream.base_url (line 9): 'http://h/v1/chat/completions' {ADDED}
upstream.api_key (line 10): must be one word of printable ASCII, without a line break, or null
upstream.connect_timeout_seconds (line 11): 'soon' must be a number, above 0
upstreams.near.base_url (line 13): 'http://h:x' must be plain ASCII, with a port from 1 to 65535 if any
upstreams.far (line 14): must be a mapping with the keys base_url, api_key, connect_timeout_seconds, read_timeout_seconds
upstreams."odd.name".base_uri (line 15): unknown key; did you mean base_url?
store_ttl_seconds (line 16): null must be a number, above 0
prices (line 17): must be a mapping with the keys input, cached_input, output
limits.max_body_bytes (line 20): the key stands twice
limits.max_body_bytes (line 20): 17 must be a whole number, 1024 or more
limits.drain_seconds (line 21): true must be a number, 0 or more
defaults.upstream (line 23): 'nowhere' is not one of upstreams (near, odd.name, far)
defaults.high_water (line 24): 0.3 must be above low_water, 0.4
defaults.context_window (line 25): 512 must be auto, or at least 1024 tokens
defaults.tidy.ansi (line 26): 3 must be true or false
defaults.tidy.jsn (line 26): unknown key; did you mean json?
defaults.tools."*".dedupe (line 28): 0 must be true, false or null
defaults.tools."[Rr]ead*" (line 29): never matches: "*" before it does
defaults.tools."[Rr]ead*".max_tool_result_tokens (line 30): 3 must be a whole number, 64 or more, or null
defaults.tools."[Rr]ead*".tidy.tables (line 31): 'maybe' must be true or false
defaults.tools."" (line 32): '' must be a glob of printable characters, not an empty one
defaults.tools."(a,b)[c]" (line 33): never matches: "*" before it does
defaults.tools."(a,b)[c]".exclude (line 33): must be true, false, or a list of globs
defaults.tools."say \\"[key]\\", größe" (line 34): never matches: "*" before it does
defaults.tools."say \\"[key]\\", größe".exclud (line 34): unknown key; did you mean exclude?
defaults.tools."[key]" (line 35): never matches: "*" before it does
defaults.tools."[key]"."[key]" (line 35): unknown key; known here: {TOOL}
defaults.tools."[key]".truncation (line 35): 'none' must be salient, head_tail or null
defaults.tools."[Ww]rite" (line 36): never matches: "*" before it does
defaults.tools."x[yz" (line 37): 'x[yz' {UNCLOSED}
defaults.summary.role (line 38): 'nobody' must be auto, user, system, assistant or pair
defaults.summary.max_tokens (line 38): 1 must be a whole number, 64 or more
models[0].low_water (line 41): 0.9 must be below high_water, 0.5
models[1].high_water (line 43): 2 must be a number, above 0 and at most 1
models[1] (line 43): match is required
models[1].summary.upstream (line 44): 'nobody' is not one of upstreams (near, odd.name, far)
models[2].match (line 46): never matches: "gpt-*" before it does
models[2].tools."[z-a]" (line 47): '[z-a]' never matches: one of its [...] holds no character
models[3] (line 48): must be a mapping with the keys {POLICY}, match
profiles.1.protect_turns (line 51): -1 must be a whole number, 0 or more
profiles.c.low_water (line 53): 0.3 must be below high_water, 0.3
"""


def test_one_pass_tells_everything() -> None:
    """Mistakes of every kind, in the order of their lines, and nothing twice."""
    assert _problems(WRONG) == SAID.splitlines()
