"""The command line: its commands, and how they end."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from support.command_line import run_trimtab, tell
from support.golden import check_golden

from trimtab.proxy.cli.main import COMMANDS, OTHERS, main

pytestmark = pytest.mark.usefixtures("restored_log")


def test_python_m_proxy_is_the_program() -> None:
    """The module starts the same command under its own name."""
    done = subprocess.run([sys.executable, "-m", "trimtab", "--version"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, f"trimtab, version {version('trimtab')}\n", "")


ID, STORED, REDIS = "0" * 64, "--set store=sqlite:///s.sqlite3", "--set store=redis://127.0.0.1:9/0"
ERRORS = (
    "serve --set",
    "serve --set no.such=1",
    "serve --listen nowhere",
    "healthcheck --listen 127.0.0.1:9",
    "init --upstream http://127.0.0.1:9/v1",
    "serve --upstream example.org",
    "serve --log-level loud",
    "check .",
    "compact no-such-file",
    "compact --config no-such-file -",
    "compact - --set nonsense",
    f"stats {STORED}",
    f"stats {STORED} --json --by client",
    "stats --set store=memory",
    f"stats {REDIS}",
    "stats --set mode=maybe",
    "stats --since yesterday",
    "stats --by weather",
    "stats --by session --sort at",
    f"forget m {STORED} --set upstream.base_url=http://127.0.0.1:9/v1",
    "forget m --set store=memory",
    f"forget m {REDIS}",
    "summary nothing",
    f"summary {ID} --key-from-env ABSENT",
    f"summary {ID} --header nothing",
    f"summary {ID} --header-from-env x-acme-token=ABSENT",
    f"summary {ID} --set store=memory",
    f"summary {ID} {REDIS}",
    f"summary {ID} {STORED}",
    f"compact-session name {STORED}",
    f"compact-session name {STORED} --set dashboard.enabled=false",
    f"compact-session name {STORED} --words {'x' * 501}",
    "wrap no-such-command",
    "wrap --log-file /no/such/folder/file true",
    "compact-session name --set store=memory",
    f"compact-session name {REDIS}",
    "doctor --set mode=maybe",
    "doctor --config no-such-file",
    "doctor --key-from-env ABSENT",
    "doctor --key-from-env TWO_LINES",
    "keys list none",
    "keys revoke none",
    "keys revoke none 01234567",
    "keys add none 01234567",
    "keys add none --expires soon",
    "keys add none --expires 2020-01-31",
    "keys list none --expires 2999-01-31",
    "keys add no/folder",
)


@pytest.mark.covered
def test_what_does_not_work_ends_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes to standard error, says what to do, and shows no key. No file of keys is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("trimtab.proxy.cli.stats.name_day", lambda _: "2026-11-23")
    given = {"HOME": str(tmp_path), "TWO_LINES": "sk-PLANTED\nX: y", "COLUMNS": "120"}
    given |= dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY"), "")
    told = {line: tell(*line.split(), hidden={"x" * 501: "x..."}, **given) for line in ERRORS}
    assert "PLANTED" not in "".join(told.values())
    assert "Traceback" not in "".join(told.values())
    assert not [path for path in tmp_path.iterdir() if path.name in {"none", "no"}]
    check_golden("commands/errors", {line.replace("x" * 501, "x..."): text for line, text in told.items()})


@pytest.mark.parametrize(("name", "advice"), OTHERS.items())
def test_a_command_that_has_another_name_is_told(name: str, advice: str) -> None:
    """Each command and option in the advice is there."""
    result = run_trimtab(name, "file")

    assert result.exit_code == 2
    assert f"No such command '{name}'. Try {advice}." in result.stderr
    for told in re.findall("`trimtab ([a-z]+)([^`]*)`", advice):
        assert set(re.findall("--[a-z]+", told[1])) <= {
            name for one in main.commands[told[0]].params for name in one.opts
        }


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_told_as_it_tells_itself(name: str) -> None:
    """The list of commands has the first sentence of each command's help, without importing the command."""
    assert main.commands[name].name == name
    assert f"\n  {name} " in run_trimtab("-h").stdout
    assert main.commands[name].get_short_help_str(200) == COMMANDS[name][1]


def test_no_authorities_are_read_at_the_start() -> None:
    """They take a tenth of it. What the variable says is there again when they are."""
    program = (
        "import os; from trimtab.proxy.cli.main import main; main.commands['serve'];"
        "from aiohttp import connector as made;"
        "print(made._SSL_CONTEXT_VERIFIED.cert_store_stats()['x509'], os.environ.get('SSL_CERT_FILE'))"
    )
    given = os.environ | {"SSL_CERT_FILE": "/no/such/file.pem"}
    done = subprocess.run([sys.executable, "-c", program], env=given, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "/no/such/file.pem"]


@pytest.mark.parametrize(
    ("module", "late"),
    [("main", {"aiohttp", "pydantic", "rich"}), ("serving.serve", {"genai_prices", "opentelemetry", "redis", "rich"})],
)
def test_what_is_not_needed_at_the_start_is_not_imported(module: str, late: set[str]) -> None:
    """The list of commands needs only click; a proxy needs neither tables nor the catalogue to listen."""
    program = f"import sys, trimtab.proxy.cli.{module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not late & set(done.stdout.split())
