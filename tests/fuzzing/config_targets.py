"""Fuzzes configurations, plausible ones and absurd ones.

Laws: the result is a configuration or a ConfigError, and nothing else. The error's message is never empty and never
contains a key. If it names a line, the problem is on that line. It does not use a library's terms.
"""

import re
from typing import Any

import yaml
from fuzzing.choices import Choices, dump

from trimtab.proxy.catalogue.prices import find_price_list
from trimtab.proxy.config.document import ConfigError, Document, name_path
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import Config
from trimtab.proxy.config.values import split_address
from trimtab.rules.policy import Prices

SECRET = "sk-planted-42"  # noqa: S105 - not a real secret
_TREE: dict[str, Any] = Config().model_dump(mode="json")
_PLACES = (
    "listen", "defaults.tools", "models", "profiles.p.tools", "defaults.tidy", "upstream.base_url",
    "upstream.api_key", "upstreams.b.base_url", "upstreams.b.api_key", "store",
    "upstream.proxy", "upstream.ca_file", "upstream.client_cert_file", "upstream.client_key_file",
    "tenant", "mode", "defaults.context_window", "defaults.high_water", "defaults.low_water",
    "defaults.summary.model", "defaults.count", "models", "profiles.p.high_water", "profiles.p.upstream",
    "prices.input", "limits.max_body_bytes", "store_ttl_seconds", "metrics_path",
)  # fmt: skip
_VALUES = (
    "auto", "", "off", "0", "-1", "1e400", "nan", ".inf", "0x10", "1_000", "1:30", "2020-13-45", "2020-01-01", "true",
    "null", "~", "[]", "{}", "[3, {match: '*'}, {match: a}]", "{'[Rr]ead*': {dedupe: 3}, '(a,b)': {nope: 1}, '[': {}}",
    "{x: &a {high_water: 3}, <<: *a}", "{'*': {}, '[key]': {tidy: 3}}", "http://h/v1/chat/completions",
    "[{match: 'a*', high_water: 0.5}]", "[{match: ''}]", "memory", "redis://h:1/0",
    "redis://h:99999", "sqlite:///x", "http://[", "http://[::1]:1", "http://h:0", "http://h:x", "https://a@b",
    "HTTP://h", "http://h/\u00e9", "127.0.0.1:0", "[::]:80", ":1", "h:99999999999999999999", "h:²", "h:٣", "${HOME}",
    "${NOT_SET}", "${NOT_SET:-x}", "${", "!!python/object:os.system x", "!!binary x", "&a [*a]", "*a", "|\n  x",
    "? x", "---", "%YAML 9.9", "\t", "'", '"\\ud800"', "\ud800", "\x00", "\ufeff", "header:X-A", "header:a b",
    "header:\u00e9", "~nobody", "socks5://h:1", "http://u:p@h:1", "*:1,[::1]:2,10.0.0.0/8",
    "9" * 5000, "1" * 400, "²", "٣",
)  # fmt: skip
_LOCATED = re.compile(r"(.*?) \(line (\d+)\): ")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?")
_FOREIGN = re.compile(
    r"\b(?:valid (?:tuple|dictionary|string|integer|number|boolean)|instance of|Input|NoneType|dict|tuple|str|chr|arg"
    r"|Value error|something else$)\b"
)
_ENVIRONMENT = ("TRIMTAB_UPSTREAM", "TRIMTAB_LISTEN", "TRIMTAB_AUTOCOMPACT_PCT", "HOME", "HTTPS_PROXY", "no_proxy")


def fuzz_config(data: bytes) -> None:
    """Load a text with settings and an environment."""
    choices = Choices(data)
    environment = {choices.pick(_ENVIRONMENT): choices.pick(_VALUES) for _ in range(choices.below(3))}
    settings = [_write_setting(choices) for _ in range(choices.below(4))]
    text = _write_text(choices)
    problem = ""
    try:
        config = load_config(text, settings=settings, environment=environment)
    except ConfigError as error:
        problem = str(error) or "nothing"
    else:
        _use(config, choices.text())
    assert problem != "nothing", "an error without a message"
    assert SECRET not in problem, "an error that contains a key"
    _check_words(problem, text)


def _check_words(problem: str, text: str) -> None:
    """Each line of the message describes one error in plain terms. A name with a line number is on that line."""
    lines = problem.split("\n")
    for line in lines:
        assert not _FOREIGN.search(_QUOTED.sub("", line)), f"an error in a library's terms: {line!r}"
        assert ": " in line or "\n" not in problem, f"an error broken over lines: {line!r}"
    located = [(match[1], int(match[2])) for line in lines if (match := _LOCATED.match(line))]
    if located:
        places = {(name_path(path), place[0]) for path, place in Document.parse(text).places.items()}
        assert places.issuperset(located), "an error at a place that does not exist"


def _use(config: Config, name: str) -> None:
    """Use a configuration in each way in which the proxy does."""
    assert len(split_address(config.listen)) == 2
    config.discovered_upstreams()
    assert len(config.open_addresses()) <= 2
    for settings in (config.policy_for(name), *map(config.over_defaults, config.profiles.values())):
        config.upstream_for(settings.upstream)
        policy = settings.to_policy(find_price_list(config, settings, name).to_ratios(), token_ratio=1.5)
        assert 0 < policy.limit_tokens(10**9) <= policy.limit_tokens(), "no room for a prompt"
        assert settings.to_policy(Prices(), window_tokens=1024).limit_tokens() > 0, "no room for a prompt"


def _write_setting(choices: Choices) -> str:
    value = choices.text() if choices.happens(64) else choices.pick(_VALUES)
    place = choices.pick(_PLACES) if not choices.happens(32) else choices.text() + "." + choices.text()
    return place + choices.pick(("=", "=", "=", "", ".x=", "[0]=", "..=")) + value


def _write_text(choices: Choices) -> str:
    kind = choices.below(6)
    if kind == 1:
        return choices.rest().decode("utf-8", choices.pick(("replace", "surrogateescape")))
    tree = _change(_TREE, choices, 3)
    if kind == 2:
        return dump(tree, choices).decode("utf-8", "replace")
    written: str = yaml.safe_dump(tree, allow_unicode=choices.happens(128))
    if kind == 3:
        return choices.mutate(written.encode("utf-8", "replace")).decode("utf-8", "replace")
    if kind == 4:
        place = choices.below(len(written) + 1)
        return written[:place] + choices.pick(_VALUES) + written[place:]
    return written


def _change(tree: Any, choices: Choices, depth: int) -> Any:
    """A part of the tree, with some odd keys or values."""
    if not isinstance(tree, dict) or not depth:
        return choices.value() if choices.happens(32) else choices.pick((tree, choices.pick(_VALUES)))
    changed: dict[Any, Any] = {}
    for key, value in tree.items():
        if key == "api_key":
            changed[key] = choices.pick((None, SECRET, SECRET + " \u00e9", [SECRET], {"x": SECRET}))
        elif choices.happens(32):
            changed[key] = _change(value, choices, depth - 1)
    if choices.happens(32):
        changed[choices.pick((choices.text(), "high_watr", "api_kye", 1, 1.5, True, None))] = choices.value()
    if choices.happens(32):
        changed[choices.pick(("upstreams", "profiles", "models"))] = choices.pick(
            ({"b": {}}, [{"match": "a*"}], choices.value())
        )
    return changed
