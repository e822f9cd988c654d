"""Shared by several commands: options, the exit after wrong use, and the reading of request bodies."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

import click

from proxy.config.errors import ConfigError
from proxy.telemetry.logs import FORMATS, LEVELS
from proxy.wire.codec import Request, UndecodableError
from proxy.wire.dialects import DEFAULT
from rules.pipeline.exceeded import LimitExceededError

WRONG_USE = 2
"""Exit status. Source: click, which uses it for wrong arguments."""

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
table_option = click.option(
    "--table/--json", "as_table", default=None, help="Print a table or JSON. Default: a table on a terminal, else JSON."
)
log_level_option = click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    envvar="TRIMTAB_LOG_LEVEL",
    help="Lowest level to log; also TRIMTAB_LOG_LEVEL. Default: info.",
)
log_format_option = click.option(
    "--log-format",
    type=click.Choice(FORMATS, case_sensitive=False),
    default="auto",
    envvar="TRIMTAB_LOG_FORMAT",
    help="Format of log lines; also TRIMTAB_LOG_FORMAT. Default: auto, which is text on a terminal, else JSON.",
)


@contextmanager
def wrong_use() -> Iterator[None]:
    """Context manager: on ConfigError, print each error on a line of its own and exit with status 2."""
    try:
        yield
    except ConfigError as error:
        for line in str(error).splitlines():
            click.echo(f"trimtab: {line}", err=True)
        sys.exit(WRONG_USE)


def for_each_request(
    file: IO[bytes], work: Callable[[Request, str], None], stand_in: Callable[[bytes], bytes], *, jsonl: bool
) -> NoReturn:
    """Call `work` for the request in the file, or with `jsonl` for the one in each line, and exit.

    The status is 1 if a request could not be decoded or compacted, else 0.

    work: its second argument is a prefix for messages that names the line; empty without `jsonl`.
    stand_in: makes the output of a line that cannot be decoded or compacted, so that each line in gives a line out.
    """
    failed = False
    bodies = (line.rstrip(b"\n") for line in file) if jsonl else iter([file.read()])
    for number, body in enumerate(bodies, start=1):
        place = f"line {number}: " if jsonl else ""
        try:
            work(DEFAULT.read(body), place)
        except (UndecodableError, LimitExceededError) as error:
            reason = "not a chat request" if isinstance(error, UndecodableError) else str(error)
            click.echo(f"trimtab: {place}{reason}", err=True)
            if jsonl:
                click.echo(stand_in(body))
            failed = True
    sys.exit(1 if failed else 0)
