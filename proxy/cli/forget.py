"""`trimtab forget`: forgets, for every client, what was learned about a model.

Law: it writes to the store and calls no running proxy. Each proxy that shares the store notices when it next reads it.
"""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import click

from trimtab.proxy.cli.options import config_option, open_shared, set_option, wrong_use
from trimtab.proxy.config.load import load_file
from trimtab.proxy.config.schema import Config
from trimtab.proxy.models.keeping import REFRESH_SECONDS
from trimtab.proxy.models.records import ModelName, Record, Records
from trimtab.rules.tokens.families import find_family

FORGOT = "forgot what was learned"
NOTHING_KNOWN = (
    "nothing was known for all clients (is this the name in requests?); forgot what single clients have taught"
)


@click.command()
@click.argument("model")
@config_option
@set_option
def forget(model: str, config_path: Path | None, settings: tuple[str, ...]) -> None:
    """Forget what trimtab learned about MODEL.

    That is its context window and its token ratio, for all clients. Write MODEL as requests name it, and give the same
    --config and --set as to `serve`. The proxy still uses a window that the upstream reports when trimtab asks it.
    """
    with wrong_use():
        config = load_file(config_path, settings)
        names = asyncio.run(forget_model(config, model))
    known = {urlsplit(name.base_url).netloc for name, is_known in names.items() if is_known}
    for host in sorted({urlsplit(name.base_url).netloc for name in names}):
        click.echo(f"{model} at {host}: {FORGOT if host in known else NOTHING_KNOWN}")
    click.echo(f"running proxies notice within {REFRESH_SECONDS:g} seconds of the next request")


async def forget_model(config: Config, model: str) -> dict[ModelName, bool]:
    """Forget a model at every upstream of the configuration.

    Return the names under which facts may have been kept, and whether there were any for all clients.

    Raises StoppedError; ConfigError if the configured store can never be opened.
    """
    record = Record(find_family(model).ratio)
    async with open_shared(
        config,
        in_memory="store: memory keeps nothing on disk; restart the proxy to make it forget",
        at_fault="the store cannot be opened, read or written, so nothing was forgotten; trimtab doctor says why",
    ) as store:
        return {name: await Records(store).forget(name, record) for name in list_names(config, model)}


def list_names(config: Config, model: str) -> list[ModelName]:
    """All names under which facts about a model may be kept: one for each upstream and way of counting.

    The names of the main upstream come first.
    """
    upstreams = (config.upstream, *config.upstreams.values())
    policies = (config.defaults, *map(config.over_defaults, (*config.models, *config.profiles.values())))
    counted = dict.fromkeys(policy.count for policy in policies)
    return [ModelName(upstream.base_url, model, count) for upstream in upstreams for count in counted]
