"""`trimtab compact-session`: has a session cut at its next request.

Law: it writes to the store and calls no running proxy. Each proxy that shares the store notices when it next reads it.
"""

import asyncio
from functools import partial
from pathlib import Path

import click

from trimtab.proxy.account.history.sessions import find_named
from trimtab.proxy.account.session_names import NAME_CHARS
from trimtab.proxy.cli.options import StoppedError, config_option, open_shared, set_option, wrong_use
from trimtab.proxy.config.load import load_file
from trimtab.proxy.config.schema import Config
from trimtab.proxy.server.admin.dashboard.opening import open_history
from trimtab.proxy.summaries.wishes import REFRESH_SECONDS, Wishes
from trimtab.proxy.telemetry.logs import get_log

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
    fault = "the store cannot be opened, read or written, or has too many wishes; trimtab doctor says more"
    async with open_shared(
        config,
        in_memory="store: memory is in the running proxy only; use its dashboard, or the header x-trimtab-compact",
        at_fault=fault,
    ) as store:
        if not await _is_known(config, session):
            message = (
                f"no session is named {session}: the dashboard and trimtab inspect show the names, of {NAME_CHARS}"
                " digits. Its requests must share this store; give the same --config and --set as to serve"
            )
            raise StoppedError(message)
        if not await Wishes(store).make(session, words):
            raise StoppedError(fault)


async def _is_known(config: Config, session: str) -> bool:
    """Whether there may be such a session: it had a request, or nobody knows, as the dashboard is off or out."""
    if not config.dashboard.enabled:
        return True
    faults: list[str] = []
    history = open_history(config, log=get_log(), on_fault=faults.append)
    try:
        found = await history.read(partial(find_named, name=session))
    finally:
        await history.close()
    return found is not None or bool(faults)
