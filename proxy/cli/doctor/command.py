"""`trimtab doctor` on the terminal: the report of all checks, as tables or as JSON."""

import asyncio
import os
import sys
from pathlib import Path

import click
import uvloop
from rich.console import Console

from trimtab.proxy.cli.doctor.report import examine
from trimtab.proxy.cli.options import config_option, prints_table, set_option, table_option, wrong_use
from trimtab.proxy.config.load import load_file


@click.command()
@click.option("--model", "models", multiple=True, metavar="NAME", help="Also report this model. Repeatable.")
@click.option(
    "--key-from-env",
    metavar="NAME",
    help="Environment variable with a key for the main upstream, if clients bring their own keys.",
)
@table_option
@config_option
@set_option
def doctor(
    *,
    models: tuple[str, ...],
    key_from_env: str | None,
    as_table: bool | None,
    config_path: Path | None,
    settings: tuple[str, ...],
) -> None:
    """Check whether the proxy will work here. For each problem, say what to do.

    It checks the upstreams, the models' context windows and prices, how tokens are counted, the listen address, the
    store, the number of processes and the limit of open files. The status is 1 if something will fail, else 0.
    """
    key = os.environ.get(key_from_env, "") if key_from_env is not None else None
    if key is not None and not (key.isascii() and key.isprintable() and key.strip()):
        message = "this environment variable holds no key"
        raise click.BadParameter(message, param_hint="--key-from-env")
    with wrong_use(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        config = load_file(config_path, settings)
        report = runner.run(examine(config, models, key))
    if prints_table(as_table=as_table):
        report.print_tables(Console())
    else:
        click.echo(report.write_json())
    sys.exit(1 if report.will_fail else 0)
