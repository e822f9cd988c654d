"""Options that several commands have, and those of the log."""

from pathlib import Path

import click

from proxy.telemetry.logs import FORMATS, LEVELS

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
