"""Shared by several commands: options, the exit after wrong use, and the reading of request bodies."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, get_args

import click

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.network import OPENAI_HOST, read_host
from trimtab.proxy.config.schema import Config, Dialect
from trimtab.proxy.store.opening import data_directory
from trimtab.proxy.telemetry.logs import FORMATS, LEVELS

WRONG_USE = 2  # exit status. Source: click, which uses it for wrong arguments.

file_argument = click.argument("file", type=click.File("rb"), default="-")
config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    envvar="TRIMTAB_CONFIG",
    help="YAML configuration file; also TRIMTAB_CONFIG. Every key has a default.",
)
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="DOTTED.KEY=VALUE",
    help="Set one key of the configuration. It overrides the file and the environment. Repeatable.",
)


def takes_config(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the command has the options --config and --set."""
    return config_option(set_option(command))


dialect_option = click.option(
    "--dialect",
    type=click.Choice(get_args(Dialect)),
    default=None,
    help="Dialect of the request: chat completions, OpenAI's Responses, or Anthropic's Messages. Default: guessed from "
    "the request.",
)
table_option = click.option(
    "--table/--json", "as_table", default=None, help="Print a table or JSON. Default: a table on a terminal, else JSON."
)
log_level_option = click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default=None,
    envvar="TRIMTAB_LOG_LEVEL",
    help="Lowest level to log; also TRIMTAB_LOG_LEVEL. Default: the key log.level.",
)
log_format_option = click.option(
    "--log-format",
    type=click.Choice(FORMATS, case_sensitive=False),
    default=None,
    envvar="TRIMTAB_LOG_FORMAT",
    help="Format of log lines; also TRIMTAB_LOG_FORMAT. Default: the key log.format.",
)


def prints_table(*, as_table: bool | None) -> bool:
    return sys.stdout.isatty() if as_table is None else as_table


def usual_recordings() -> Path:
    return data_directory() / "recordings"


def list_exports(config: Config, url: str) -> list[str]:
    upstreams = [config.upstream, *(config.upstreams[name] for name in config.list_reachable() if name is not None)]
    providers = {upstream.provider for upstream in upstreams}
    hosts = {read_host(upstream.base_url) for upstream in upstreams if upstream.provider is None}
    lines = [] if providers == {"anthropic"} else [f"export OPENAI_BASE_URL={url}/v1"]
    if "anthropic" in providers:
        lines.append(f"export ANTHROPIC_BASE_URL={url}")
    elif hosts - {OPENAI_HOST}:
        lines.append(f"export ANTHROPIC_BASE_URL={url}  # if the server has /v1/messages")
    if "azure" in providers:
        lines.append(f"export AZURE_OPENAI_ENDPOINT={url}")
    return lines


class StoppedError(Exception):
    """A command cannot go on. The message says why, and what to do."""


def give_up(message: str, status: int = 1) -> NoReturn:
    click.echo(f"trimtab: {message}", err=True)
    sys.exit(status)


@contextmanager
def wrong_use() -> Iterator[None]:
    """Context manager: an error ends the command with its message; those of a configuration with status 2."""
    try:
        yield
    except StoppedError as error:
        give_up(str(error))
    except ConfigError as error:
        for line in str(error).splitlines():
            click.echo(f"trimtab: {line}", err=True)
        sys.exit(WRONG_USE)


def read_key(variable: str, option: str = "") -> str | None:
    """The key in a variable; None if no header can carry it, or BadParameter if an option names the variable."""
    key = os.environ.get(variable, "").strip()
    if key and key.isascii() and key.isprintable():
        return key
    if option:
        raise click.BadParameter(f"the environment variable {variable} holds no key", param_hint=option)
    return None
