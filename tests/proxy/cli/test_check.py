"""`trimtab check`: what it says of a right file, and of a wrong one."""

import sys
from pathlib import Path

import pytest
from support.command_line import run_trimtab, tell
from support.golden import check_golden

DOCUMENTS = (
    "{}",
    "upstream: {base_url: 'http://h/v1'}",
    "defaults: {high_water: 0.2}",
    "defaults: {high_water: 0.125}",
    "defaults: {high_water: 0.2, cut: when_it_pays}",
    "defaults: {cut: at_threshold}",
    "defaults: {cut: at_threshold, context_window: 32000, economy: frugal}",
    "defaults: {compact_at_tokens: 9000}",
    "defaults: {compact_at_tokens: 9000, cut: when_it_pays, context_window: 20000}",
    "defaults: {compact_at_tokens: 14999, context_window: 20000}",
    "defaults: {compact_at_tokens: 15000, context_window: 20000}",
    "defaults: {overflow_strategy: error, high_water: 0.2}",
    "defaults: {max_turns: 5, mode: observe}",
    "defaults: {sections: {recent: 0.2}}",
    "defaults: {sections: {}}",
    "mode: off",
    "profiles: {small: {mode: off}}",
    "profiles: {small: {max_turns: 5}}",
    "profiles: {small: {compact_at_tokens: 800}, same: {protect_turns: 5}}",
    "models: [{match: q*, high_water: 0.5}]",
    "defaults: {summary: {by: provider}}",
    "models: [{match: q*, summary: {by: provider}}]",
    "profiles: {small: {summary: {by: provider}}}",
    "defaults: {summary: {by: provider, model: m}}",
    "defaults: {summary: {by: provider}}\nmodels: [{match: q*, summary: {model: m}}]",
    "listn: h:1\nmode: maybe",
    "store: redis://:PLANTED@127.0.0.1:9/0",
    "store: redis://:PLANTED@127.0.0.1:9/0?nonsense=1",
    "upstream: {proxy: 'socks5://127.0.0.1:1'}",
    "a: \\xff",
)
ENVIRONMENTS = (
    {"TRIMTAB_AUTOCOMPACT_PCT": "20"},
    {"TRIMTAB_WORKER": "2", "TRIMTAB_SERVICE_HOST": "h", "TRIMTAB_DEFAULTS__DEDUPE": "false"},
    {"TRIMTAB_DEFAULTS__DEDUP": "false"},
)


@pytest.mark.covered
def test_what_check_says_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mistake on its own line; which rule of cuts holds, in general and where another one does; who summarises."""
    monkeypatch.chdir(tmp_path)
    texts = {}
    for document in DOCUMENTS:
        Path("file").write_bytes(document.encode().replace(b"\\xff", b"\xff"))
        texts[document] = tell("check", "file")
    Path("file").write_text("{}")
    texts |= {str(variables): tell("check", "file", **variables) for variables in ENVIRONMENTS}
    texts["--set mode=off"] = tell("check", "file", "--set", "mode=off")
    assert "PLANTED" not in "".join(texts[document] for document in DOCUMENTS)
    check_golden("commands/check", texts)


def test_check_names_packages_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with what to install, as `serve` does when it starts."""
    for missing in ("redis.asyncio", "opentelemetry.sdk.trace"):
        monkeypatch.setitem(sys.modules, missing, None)
    for user in ("store.redis", "telemetry.otlp"):
        monkeypatch.delitem(sys.modules, f"trimtab.proxy.{user}", raising=False)
    file = tmp_path / "file.yaml"
    file.write_text("store: redis://:PLANTED@127.0.0.1:9/0\ntracing: {otlp_endpoint: 'http://127.0.0.1:9'}\n")

    result = run_trimtab("check", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        "trimtab: store: Redis needs a package that is not installed: pip install 'trimtab[redis]'",
        "trimtab: tracing.otlp_endpoint: traces need packages that are not installed: pip install 'trimtab[otel]'",
    ]


def test_check_is_about_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unusable proxy in the environment is a warning for `check`; `doctor` and `serve` refuse it."""
    monkeypatch.setenv("ALL_PROXY", "socks5://u:PLANTED@127.0.0.1:1")
    file = tmp_path / "right.yaml"
    file.write_text("upstream: {base_url: https://upstream.test/v1}")
    result = run_trimtab("check", file)

    assert result.exit_code == 0
    assert result.stderr.startswith("trimtab: warning: ALL_PROXY: SOCKS proxies are not supported")
    assert "PLANTED" not in result.stderr
    assert run_trimtab("doctor", "--config", file).exit_code == 2
