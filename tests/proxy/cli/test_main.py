"""The command line: its commands, and how they end."""

import os
import re
import subprocess
import sys
from importlib.metadata import version

import pytest
from support.command_line import ODD_BODY, run_trimtab

from trimtab.proxy.cli.main import COMMANDS, OTHERS, main

pytestmark = pytest.mark.usefixtures("restored_log")


def test_python_m_proxy_is_the_program() -> None:
    """The module starts the same command under its own name."""
    done = subprocess.run([sys.executable, "-m", "trimtab", "--version"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, f"trimtab, version {version('trimtab')}\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--nonsense"),
        ("serve", "--set"),
        ("check", "."),
        ("compact", "no-such-file"),
        ("compact", "--config", "no-such-file", "-"),
        ("compact", "-", "--set", "nonsense"),
        ("serve", "--upstream", "example.org"),
        ("serve", "--log-level", "loud"),
    ],
)
def test_wrong_use_ends_with_status_2_and_a_sentence(arguments: tuple[str, ...]) -> None:
    """The sentence goes to standard error, and there is never a traceback."""
    result = run_trimtab(*arguments, input_bytes=ODD_BODY)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.strip()
    assert "Traceback" not in result.stderr


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
