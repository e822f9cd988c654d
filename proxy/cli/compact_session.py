"""`trimtab compact-session`: has a session cut at its next request.

Law: it writes to the store and calls no running proxy. Each proxy that shares the store notices when it next reads it.
"""

import asyncio
from pathlib import Path

import click

from trimtab.proxy.cli.options import StoppedError, config_option, set_option, wrong_use
from trimtab.proxy.config.load import load_file
from trimtab.proxy.config.schema import Config
from trimtab.proxy.store.opening import open_store
from trimtab.proxy.summaries.wishes import REFRESH_SECONDS, Wishes
from trimtab.proxy.telemetry.logs import configure_log, get_log

MAX_WORDS_CHARS = 500
"""Source: exchange/route.py, of the header."""


@click.command()
@click.argument("session")
@click.option("--words", default="", metavar="TEXT", help="What the summary is to heed, up to 500 characters.")
@config_option
@set_option
def compact_session(session: str, *, words: str, config_path: Path | None, settings: tuple[str, ...]) -> None:
    """Have a session cut at its next request.

    SESSION is its name, as the dashboard and `trimtab inspect` show it. The session is cut to low water, once,
    whether that pays or not. Give the same --config and --set as to `serve`.
    """
    if len(words) > MAX_WORDS_CHARS:
        message = f"at most {MAX_WORDS_CHARS} characters"
        raise click.BadParameter(message, param_hint="--words")
    with wrong_use():
        asyncio.run(wish(load_file(config_path, settings, is_online=False), session, words))
    click.echo(f"{session}: its next request is cut; running proxies notice within {REFRESH_SECONDS:g} seconds")


async def wish(config: Config, session: str, words: str) -> None:
    """Make the wish. Raises StoppedError; ConfigError if the configured store can never be opened."""
    if config.store == "memory":
        message = "store: memory is in the running proxy only; use its dashboard, or the header x-trimtab-compact"
        raise StoppedError(message)
    configure_log("error")
    failures: list[str] = []
    store = open_store(config, failures.append, get_log())
    try:
        is_made = await Wishes(store).make(session, words)
    finally:
        await store.close()
    if failures or not is_made:
        message = "the store cannot be opened, read or written, or has too many wishes; trimtab doctor says more"
        raise StoppedError(message)
