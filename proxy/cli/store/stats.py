"""`trimtab stats`: what requests have cost, and what they would have cost without trimtab."""

import asyncio
import sys
from pathlib import Path

import click
import orjson

from proxy.cli.options import config_option, set_option, wrong_use
from proxy.cli.store.figures import GROUPS, NothingKeptError, describe, read_statistics
from proxy.cli.store.since import ALLOWED
from proxy.config.load import load_file


@click.command()
@click.option("--since", default="7d", show_default=True, metavar="PERIOD", help=f"Period to show: {ALLOWED}.")
@click.option("--by", type=click.Choice(GROUPS), default="model", show_default=True, help="Name of each line.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON. Money is in US dollars.")
@config_option
@set_option
def stats(*, since: str, by: str, as_json: bool, config_path: Path | None, settings: tuple[str, ...]) -> None:
    """Show what requests have cost, and what trimtab has saved.

    The figures come from the store, so give the same --config and --set as to `serve`. The proxy may be running; it
    writes its figures every few seconds. Days are in UTC. A loss is shown as a loss.
    """
    with wrong_use():
        config = load_file(config_path, settings)
        try:
            statistics = asyncio.run(read_statistics(config, since, by))
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--since") from None
        except NothingKeptError as error:
            click.echo(f"trimtab: {error}", err=True)
            sys.exit(1)
    if as_json:
        click.echo(orjson.dumps(describe(statistics), option=orjson.OPT_INDENT_2))
        return
    from proxy.cli.store.stats_table import print_table  # noqa: PLC0415 - `serve` does not need rich

    print_table(statistics)
