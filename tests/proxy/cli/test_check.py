"""`trimtab check`: what it says of a right file, and of a wrong one."""

import sys
from pathlib import Path

import pytest
from support.command_line import run_trimtab

EXAMPLE = Path(__file__).parents[3] / "config.example.yaml"

PAYS = "cut: when_it_pays: once what a cut saves is worth its price (balanced)"


def test_check_says_what_is_valid() -> None:
    """And which rule of cuts holds. The status is 0."""
    result = run_trimtab("check", EXAMPLE, "--set", "upstream.base_url=http://h/v1")

    valid = f"{EXAMPLE}: valid; entries in models: 0; upstream http://h/v1"
    assert (result.exit_code, result.stdout.splitlines()) == (0, [valid, PAYS])


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("defaults: {high_water: 0.2}", ["at_threshold: the first request that reaches high water, 20% of the room"]),
        ("defaults: {cut: at_threshold}", ["at_threshold: the first request that reaches high water, 34% of the room"]),
        (
            "defaults: {high_water: 0.125}",
            ["at_threshold: the first request that reaches high water, 12.5% of the room"],
        ),
        (
            "defaults: {compact_at_tokens: 9000, cut: when_it_pays}",
            ["at_threshold: the first request that reaches 9,000"],
        ),
        ("defaults: {compact_at_tokens: 9000}", ["at_threshold: the first request that reaches 9,000 tokens"]),
        ("defaults: {high_water: 0.2, cut: when_it_pays}", ["when_it_pays: once"]),
        ("defaults: {overflow_strategy: error, high_water: 0.2}", ["never (overflow_strategy: error)"]),
        ("mode: off", ["never (mode: off)"]),
        ("profiles: {small: {mode: off}}", ["when_it_pays: once", "never (mode: off)"]),
        ("profiles: {small: {max_turns: 5}}", ["when_it_pays: once", "when_it_pays: once"]),
        ("models: [{match: q*, high_water: 0.5}]", ["when_it_pays: once", "at_threshold: the first"]),
        ("profiles: {small: {compact_at_tokens: 800}}", ["when_it_pays: once", "at_threshold: the first"]),
    ],
)
def test_check_says_which_rule_of_cuts_holds(tmp_path: Path, document: str, told: list[str]) -> None:
    """In general, and for models and profiles for which another one does."""
    file = tmp_path / "right.yaml"
    file.write_text(document)
    lines = run_trimtab("check", file).stdout.splitlines()[1:]
    assert [line.partition("cut: ")[2].startswith(words) for line, words in zip(lines, told, strict=True)] == [
        True for _ in told
    ]
    assert [line.partition("cut: ")[0] for line in lines[1:]] == (
        ["models: q*: " if "models" in document else "profiles: small: "] if told[1:] else []
    )


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            "compact_at_tokens: 9000",
            " 9,000 tokens (compact_at_tokens, if they fit, and unless the head has three quarters of them) is cut",
        ),
        (
            "compact_at_tokens: 9000, context_window: 20000",
            " 9,000 tokens (compact_at_tokens, unless the head has three quarters of them) is cut",
        ),
        (
            "compact_at_tokens: 15000, context_window: 20000",
            "; compact_at_tokens, 15,000, has no effect, because the limit is not larger",
        ),
        ("max_turns: 5", ", and one that has more than 5 user turns (max_turns)"),
        ("sections: {recent: 0.2}", ", and one that reaches 65% of the limit (sections)"),
        ("sections: {}", "price (balanced)"),
        ("mode: observe", "; it is only reported (mode: observe)"),
    ],
)
def test_check_says_what_else_makes_a_cut_or_none(tmp_path: Path, settings: str, told: str) -> None:
    """A soft limit that the window never lets a prompt reach has no effect."""
    file = tmp_path / "right.yaml"
    file.write_text(f"defaults: {{{settings}}}")
    assert run_trimtab("check", file).stdout.splitlines()[1].endswith(told)


BY_PROVIDER = (
    "summary: by provider: its own note in the Messages and Responses APIs; in chat completions, and wherever it writes"
    " none, a model's summary"
)
BY_OTHER = "summary: by provider has no effect, because summary.model or summary.upstream names who writes"


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("defaults: {summary: {by: provider}}", BY_PROVIDER),
        ("models: [{match: q*, summary: {by: provider}}]", BY_PROVIDER),
        ("profiles: {small: {summary: {by: provider}}}", BY_PROVIDER),
        ("defaults: {summary: {by: provider, model: m}}", BY_OTHER),
        ("defaults: {summary: {by: provider}}\nmodels: [{match: q*, summary: {model: m}}]", BY_PROVIDER),
        ("{}", None),
    ],
)
def test_check_says_where_the_provider_writes_summaries(tmp_path: Path, document: str, told: str | None) -> None:
    """And if the setting has no effect."""
    file = tmp_path / "right.yaml"
    file.write_text(document)
    lines = [line for line in run_trimtab("check", file).stdout.splitlines() if line.startswith("summary: ")]
    assert lines == ([] if told is None else [told])


def test_the_variable_is_a_threshold(tmp_path: Path) -> None:
    """`check` and `compact --explain` say so."""
    variable = {"TRIMTAB_AUTOCOMPACT_PCT": "20"}
    told = "cut: at_threshold: the first request that reaches high water, 20% of the room (high_water) is cut"
    file = tmp_path / "right.yaml"
    file.write_text("{}")
    checked = run_trimtab("check", file, **variable)
    assert checked.stdout.splitlines()[1:] == [told]
    assert checked.stderr == "trimtab: set by the environment, whatever the file says: TRIMTAB_AUTOCOMPACT_PCT\n"
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    last = run_trimtab("compact", "--explain", "-", input_bytes=body, **variable).stderr.splitlines()[-1]
    assert last.startswith(told + "; limit: ")


def test_check_names_every_mistake(tmp_path: Path) -> None:
    """Each is on a line of its own."""
    file = tmp_path / "wrong.yaml"
    file.write_text("listn: h:1\nmode: maybe\n")

    result = run_trimtab("check", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        "trimtab: listn (line 1): unknown key; did you mean listen?",
        "trimtab: mode (line 2): 'maybe' must be enforce, observe or off",
    ]


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


@pytest.mark.parametrize(
    ("url", "status"), [("redis://:PLANTED@127.0.0.1:9/0", 0), ("redis://:PLANTED@127.0.0.1:9/0?nonsense=1", 2)]
)
def test_check_refuses_a_store_that_serve_could_not_open(tmp_path: Path, url: str, status: int) -> None:
    """It connects to no server."""
    file = tmp_path / "file.yaml"
    file.write_text(f"store: {url}")

    result = run_trimtab("check", file)
    assert result.exit_code == status
    assert ("trimtab: store: not a URL of a Redis server" in result.stderr) == bool(status)
    assert "PLANTED" not in result.output


def test_check_of_a_file_that_is_no_text(tmp_path: Path) -> None:
    """The message says that the file is not UTF-8."""
    file = tmp_path / "binary.yaml"
    file.write_bytes(b"a: \xff")

    assert run_trimtab("check", file).stderr == f"trimtab: {file}: cannot be read: it is not UTF-8\n"


@pytest.mark.parametrize("variable", ["ALL_PROXY", "https_proxy"])
def test_check_is_about_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """An unusable proxy in the environment is a warning for `check`; `doctor` and `serve` refuse it."""
    monkeypatch.setenv(variable, "socks5://u:PLANTED@127.0.0.1:1")
    file = tmp_path / "right.yaml"
    file.write_text("upstream: {base_url: https://upstream.test/v1}")
    result = run_trimtab("check", file)

    assert result.exit_code == 0
    valid = f"{file}: valid; entries in models: 0; upstream https://upstream.test/v1"
    assert result.stdout.splitlines() == [valid, PAYS]
    assert result.stderr.startswith(f"trimtab: warning: {variable}: SOCKS proxies are not supported")
    assert "PLANTED" not in result.stderr
    assert run_trimtab("doctor", "--config", file).exit_code == 2


def test_check_refuses_a_proxy_of_the_file(tmp_path: Path) -> None:
    """An unusable proxy in the file is an error."""
    file = tmp_path / "wrong.yaml"
    file.write_text("upstream: {proxy: 'socks5://127.0.0.1:1'}")
    assert run_trimtab("check", file).exit_code == 2


def test_check_tells_variables_that_set_no_key(tmp_path: Path) -> None:
    """They are warnings. A variable that looks like a key and is none is an error."""
    file = tmp_path / "right.yaml"
    file.write_text("mode: off")
    result = run_trimtab("check", file, TRIMTAB_WORKER="2", TRIMTAB_SERVICE_HOST="h", TRIMTAB_DEFAULTS__DEDUPE="false")

    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "trimtab: warning: the variable TRIMTAB_SERVICE_HOST sets no key",
        "trimtab: warning: the variable TRIMTAB_WORKER sets no key; did you mean TRIMTAB_WORKERS?",
        "trimtab: set by the environment, whatever the file says: TRIMTAB_DEFAULTS__DEDUPE",
    ]
    result = run_trimtab("check", file, TRIMTAB_DEFAULTS__DEDUP="false")
    assert (result.exit_code, result.stderr) == (
        2,
        "trimtab: TRIMTAB_DEFAULTS__DEDUP: names no key; did you mean TRIMTAB_DEFAULTS__DEDUPE?\n",
    )
