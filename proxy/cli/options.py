"""What several commands share: options, how they end on wrong use, and how they read request bodies."""

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

file_argument = click.argument("file", type=click.File("rb"), default="-")
config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    envvar="TRIMTAB_CONFIG",
    help="The YAML file; also TRIMTAB_CONFIG. Every key has a default.",
)
set_option = click.option(
    "--set", "settings", multiple=True, metavar="DOTTED.KEY=VALUE", help="Set one key; wins over the file."
)
table_option = click.option(
    "--table/--json", "as_table", default=None, help="A table is for terminals, JSON for all else."
)
log_level_option = click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    envvar="TRIMTAB_LOG_LEVEL",
    help="The least level that is logged; also TRIMTAB_LOG_LEVEL. The default is info.",
)
log_format_option = click.option(
    "--log-format",
    type=click.Choice(FORMATS, case_sensitive=False),
    default="auto",
    envvar="TRIMTAB_LOG_FORMAT",
    help="auto: text on a terminal, else JSON; also TRIMTAB_LOG_FORMAT.",
)


@contextmanager
def wrong_use() -> Iterator[None]:
    """Says what is wrong with the configuration, a line each, and ends with status 2."""
    try:
        yield
    except ConfigError as error:
        for line in str(error).splitlines():
            click.echo(f"trimtab: {line}", err=True)
        sys.exit(WRONG_USE)


def for_each_request(
    file: IO[bytes], work: Callable[[Request, str], None], stand_in: Callable[[bytes], bytes], *, jsonl: bool
) -> NoReturn:
    """Do the work for the request in the file, or for that in each line of it, and end: with status 1 if one failed.

    `work` also takes what names the line in messages. A line that is no request, or cannot be compacted, is named; what
    `stand_in` makes of it is printed in its place, so that lines out answer to lines in.
    """
    failed = False
    bodies = (line.rstrip(b"\n") for line in file) if jsonl else iter([file.read()])
    for number, body in enumerate(bodies, start=1):
        place = f"line {number}: " if jsonl else ""
        try:
            work(DEFAULT.read(body), place)
        except (UndecodableError, LimitExceededError) as error:
            reason = "no chat request" if isinstance(error, UndecodableError) else str(error)
            click.echo(f"trimtab: {place}{reason}", err=True)
            if jsonl:
                click.echo(stand_in(body))
            failed = True
    sys.exit(1 if failed else 0)
