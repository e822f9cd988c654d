"""`trimtab init`: questions about the upstream, and a configuration file with the answers.

Law: without a terminal it asks nothing. It overwrites no file unless it is told to. No key is shown or written.
"""

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click
import uvloop

from proxy.catalogue.providers import is_local
from proxy.cli.options import list_exports, wrong_use
from proxy.config.load import load_config
from proxy.config.network.urls import OPENAI_HOST
from proxy.config.schema import Config

if TYPE_CHECKING:
    from typing import Unpack

    from proxy.cli.setup.probe import Probe

DEFAULT_URL = f"https://{OPENAI_HOST}/v1"
DEFAULT_FILE = Path("trimtab.yaml")
ECONOMIES = ("careful", "balanced", "frugal")
KEY_VARIABLES = {"anthropic": "ANTHROPIC_API_KEY", "azure": "AZURE_OPENAI_API_KEY"}
"""By provider; any other server's is OPENAI_API_KEY. Source: the providers' own libraries."""


class Given(TypedDict):
    """The options."""

    upstream: str | None
    key_from_env: str | None
    own_key: bool
    economy: str
    mode: str
    output: Path
    force: bool
    yes: bool


@dataclass(frozen=True, slots=True)
class Desk:
    """Where questions are asked. `asks`: whether somebody answers; else each answer is the default."""

    asks: bool

    def ask(self, question: str, default: str, kind: click.Choice[str] | None = None) -> str:
        """The answer to a question."""
        return str(click.prompt(question, default=default, type=kind, err=True)) if self.asks else default

    def confirm(self, question: str, *, default: bool) -> bool:
        """Whether the answer is yes."""
        return click.confirm(question, default=default, err=True) if self.asks else default


@click.command()
@click.option(
    "--upstream", metavar="URL", help=f"Server that requests go to. Default: OPENAI_BASE_URL, or {DEFAULT_URL}."
)
@click.option(
    "--key-from-env",
    metavar="NAME",
    help="Environment variable with a key, to ask the server for its models. Default: that of the provider's libraries,"
    " for a server on the internet.",
)
@click.option("--own-key", is_flag=True, help="trimtab sends this key instead of the clients' keys.")
@click.option(
    "--economy",
    type=click.Choice(ECONOMIES),
    default="balanced",
    show_default=True,
    help="careful cuts late and forgets least; frugal cuts early and costs least.",
)
@click.option(
    "--mode",
    type=click.Choice(("enforce", "observe")),
    default="enforce",
    show_default=True,
    help="observe only counts and logs what would be done.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_FILE,
    show_default=True,
    help="File to write; - is standard output.",
)
@click.option("--force", is_flag=True, help="Overwrite the file.")
@click.option("--yes", is_flag=True, help="Ask nothing, and write the file even if the server cannot be reached.")
def init(**given: "Unpack[Given]") -> None:
    """Write a configuration file, after a look at the server.

    It asks a few questions on a terminal; elsewhere, options and defaults answer them. It asks the server for its
    models, and says what it found.
    """
    desk = Desk(asks=_has_terminal() and not given["yes"])
    if not given["force"] and given["output"].exists() and str(given["output"]) != "-":
        _give_up(f"{given['output']} exists; choose another file with -o, or overwrite it with --force")
    usual = os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL
    url = given["upstream"] or desk.ask("URL of the model server", usual)
    with wrong_use():
        config = load_config(settings=(f"upstream.base_url={url}",), environment={})
    name = _choose_variable(config, given, desk)
    if given["own_key"] and not name:
        _give_up("--own-key needs the name of a variable: --key-from-env NAME")
    found = _look(config, os.environ.get(name, ""))
    for line in found.describe():
        click.echo(line, err=True)
    if not (found.is_reachable or given["yes"] or desk.confirm("Write the file anyway?", default=False)):
        _give_up("no file was written; start the server, or use --yes")
    text = _write(config, found, name, given, desk)
    _save(text, given)
    _tell_next(config, given["output"], name)


def _has_terminal() -> bool:
    return sys.stdin.isatty()


def _give_up(message: str) -> None:
    click.echo(f"trimtab: {message}", err=True)
    sys.exit(1)


def _choose_variable(config: Config, given: Given, desk: Desk) -> str:
    """The name of the variable with a key; empty for none. A key itself would stay in the shell's history."""
    if given["key_from_env"] is not None:
        if not os.environ.get(given["key_from_env"]):
            click.echo(f"The variable {given['key_from_env']} is not set here.", err=True)
        return given["key_from_env"]
    base_url, provider = config.upstream.base_url, config.upstream.provider
    usual = "" if is_local(base_url) else KEY_VARIABLES.get(provider or "", "OPENAI_API_KEY")
    told = "Variable with a key for it, only to ask for its models (empty: none)"
    name = desk.ask(told, usual)
    return name if name.isidentifier() else ""


def _look(config: Config, key: str) -> "Probe":
    from proxy.cli.setup.probe import probe  # noqa: PLC0415 - `serve` does not need it

    usable = key if key.isascii() and key.isprintable() and key.strip() else None
    with wrong_use():
        upstream = load_config(settings=(f"upstream.base_url={config.upstream.base_url}",)).upstream
    click.echo(f"Asking {upstream.base_url} for its models ...", err=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(probe(upstream, usable))


def _write(config: Config, found: "Probe", name: str, given: Given, desk: Desk) -> str:
    """The text of the file; checked, because names of models come from the server."""
    from proxy.cli.setup.document import Choices, write_document  # noqa: PLC0415 - imports the probe

    own = given["own_key"] or (
        bool(name) and desk.confirm("Shall trimtab send this key for all clients?", default=False)
    )
    economy, mode = given["economy"], given["mode"]
    if desk.asks:
        economy = desk.ask("careful cuts late, frugal cuts early", economy, click.Choice(ECONOMIES))
        watch = desk.confirm("Only observe at first, and change no request?", default=mode == "observe")
        mode = "observe" if watch else "enforce"
    choices = Choices(config.upstream.base_url, name if own else "", economy, mode)
    text = write_document(choices, found.unknown)
    with wrong_use():
        load_config(text, environment=dict.fromkeys(filter(None, [choices.own_key]), "key"))
    return text


def _save(text: str, given: Given) -> None:
    if str(given["output"]) == "-":
        click.echo(text, nl=False)
        return
    try:
        with given["output"].open("w" if given["force"] else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        _give_up(f"{given['output']}: {os.strerror(error.errno or 0)}")


def _tell_next(config: Config, output: Path, name: str) -> None:
    """What to do next, on standard error."""
    if str(output) == "-":
        return
    url = f"http://{config.listen}"
    key = f"; clients keep their key, for example {name}" if name else ""
    lines = [
        f"Wrote {output}. Next:",
        f"  trimtab serve --config {output}",
        f"and in the client's terminal{key}:",
        *(f"  {line}" for line in list_exports(config, url)),
    ]
    click.echo("\n".join(lines), err=True)
