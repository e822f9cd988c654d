"""`trimtab compact-session`, `forget` and `summary`: what running proxies have in the store that they share.

Law: nothing here calls a running proxy; each one notices what was written when it next reads the store. No credential
is printed. Without the right one, nobody learns whether a summary exists.
"""

import asyncio
import os
import re
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import click

from trimtab.proxy.account.history.sessions import find_named
from trimtab.proxy.account.outcome import NAME_CHARS
from trimtab.proxy.cli.options import StoppedError, read_key, takes_config, wrong_use
from trimtab.proxy.config.load import load_file
from trimtab.proxy.config.schema import Config
from trimtab.proxy.exchange.route import MAX_WORDS_CHARS
from trimtab.proxy.http.tenancy import Tenancy
from trimtab.proxy.models import keeping
from trimtab.proxy.models.records import ModelName, Record, Records, expect_scale
from trimtab.proxy.server.admin.opening import open_history
from trimtab.proxy.store.opening import find_key_file, open_store
from trimtab.proxy.store.store import SummaryStore
from trimtab.proxy.summaries.cold_cuts import REFRESH_SECONDS, Wishes
from trimtab.proxy.summaries.sealing import KEY_BYTES, KeyFileError, load_key, unseal
from trimtab.proxy.telemetry.logs import configure_log, escape, get_log
from trimtab.rules.summary.request import Summary
from trimtab.rules.tokens.families import SILENT


@asynccontextmanager
async def open_shared(config: Config, *, in_memory: str, at_fault: str) -> AsyncIterator[SummaryStore]:
    """The store that running proxies share.

    Raises StoppedError with `in_memory` if they share none, and with `at_fault` if it has failed; ConfigError if it can
    never be opened.
    """
    if config.store == "memory":
        raise StoppedError(in_memory)
    configure_log("error")
    failures: list[str] = []
    store = open_store(config, failures.append, get_log())
    try:
        yield store
    finally:
        await store.close()
    if failures:
        raise StoppedError(at_fault)


@click.command()
@click.argument("session")
@click.option("--words", default="", metavar="TEXT", help="What the summary is to heed, up to 500 characters.")
@takes_config
def compact_session(session: str, *, words: str, config_path: Path | None, settings: tuple[str, ...]) -> None:
    """Have a session cut at its next request.

    SESSION is its name, as the dashboard and `trimtab inspect` show it. The session is cut to low water, once,
    whether that pays or not. Give the same --config and --set as to `serve`.
    """
    if len(words) > MAX_WORDS_CHARS:
        raise click.BadParameter(f"at most {MAX_WORDS_CHARS} characters", param_hint="--words")
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
        if config.dashboard.enabled:  # else nobody knows which sessions there are
            faults: list[str] = []
            history = open_history(config, log=get_log(), on_fault=faults.append)
            try:
                is_known = await history.read(partial(find_named, name=session)) is not None or bool(faults)
            finally:
                await history.close()
            if not is_known:
                raise StoppedError(
                    f"no session is named {session}: the dashboard and trimtab inspect show the names, of {NAME_CHARS}"
                    " digits. Its requests must share this store; give the same --config and --set as to serve"
                )
        if not await Wishes(store).make(session, words):
            raise StoppedError(fault)


FORGOT = "forgot what was learned"
NOTHING_KNOWN = (
    "nothing was known for all clients (is this the name in requests?); forgot what single clients have taught"
)


@click.command()
@click.argument("model")
@takes_config
def forget(model: str, config_path: Path | None, settings: tuple[str, ...]) -> None:
    """Forget what trimtab learned about MODEL.

    That is its context window and its token ratio, for all clients. Write MODEL as requests name it, and give the same
    --config and --set as to `serve`. The proxy still uses a window that the upstream reports when trimtab asks it.
    """
    with wrong_use():
        names = asyncio.run(forget_model(load_file(config_path, settings), model))
    known = {urlsplit(name.base_url).netloc for name, is_known in names.items() if is_known}
    for host in sorted({urlsplit(name.base_url).netloc for name in names}):
        click.echo(f"{model} at {host}: {FORGOT if host in known else NOTHING_KNOWN}")
    click.echo(f"running proxies notice within {keeping.REFRESH_SECONDS:g} seconds of the next request")


async def forget_model(config: Config, model: str) -> dict[ModelName, bool]:
    """Forget a model at every upstream. Raises StoppedError, ConfigError.

    Returns the names under which facts may have been kept, and whether there were any for all clients.
    """
    async with open_shared(
        config,
        in_memory="store: memory keeps nothing on disk; restart the proxy to make it forget",
        at_fault="the store cannot be opened, read or written, so nothing was forgotten; trimtab doctor says why",
    ) as store:
        kept = Records(store)
        return {
            name: await kept.forget(name, Record(expect_scale(name, SILENT).ratio))
            for name in list_names(config, model)
        }


def list_names(config: Config, model: str) -> list[ModelName]:
    """All names under which facts of a model may be kept, by upstream (the main one first) and way of counting."""
    upstreams = (config.upstream, *config.upstreams.values())
    policies = (config.defaults, *map(config.over_defaults, (*config.models, *config.profiles.values())))
    counted = dict.fromkeys(policy.count for policy in policies)
    return [ModelName(upstream.base_url, model, count) for upstream in upstreams for count in counted]


KEY_VARIABLES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY")
"""Where clients find their key. Source: the clients of OpenAI, Anthropic and Azure."""
KEY_FORMS = (("authorization", "Bearer {}"), ("x-api-key", "{}"), ("api-key", "{}"), ("x-goog-api-key", "{}"))
"""How clients send a key. Source: as in KEY_NAMES of proxy/http/credentials.py."""
_ID = re.compile(r'"?([0-9a-f]{64})(?:"|$|;)')
_UNREADABLE = (
    "no summary with this id can be read with this credential: the id, the key, another header of the client or the"
    " store is a different one, or the summary has expired (store_ttl_seconds)"
)
_NO_KEY = (
    "no key was given, and without one no summary with this id can be read: put the client's key into "
    f"{' or '.join(KEY_VARIABLES)}, or into a variable that --key-from-env names. If the client sends no key, the id, a"
    " header of the client or the store is a different one, or the summary has expired (store_ttl_seconds)"
)
Pair = tuple[str, str]


def _read_pairs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[Pair, ...]:
    pairs = tuple((name.strip(), value) for name, _, value in (one.partition("=") for one in given))
    if not all(name and value for name, value in pairs):
        raise click.BadParameter("write NAME=VALUE")
    return pairs


def _read_id(_: click.Context, __: click.Parameter, given: str) -> str:
    found = _ID.match(given.strip().lower())
    if found is None:
        raise click.BadParameter("an id has 64 hexadecimal digits; copy it from the header x-trimtab-summary")
    return found[1]


@click.command()
@click.argument("summary_id", metavar="ID", callback=_read_id)
@click.option(
    "--key-from-env",
    metavar="VARIABLE",
    help=f"Environment variable with the client's key. Default: {', '.join(KEY_VARIABLES)}, as far as they are set.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_read_pairs,
    help="Another header that the client sends, if it tells clients apart (an organization, the tenant). Repeatable.",
)
@click.option(
    "--header-from-env",
    "hidden",
    multiple=True,
    metavar="NAME=VARIABLE",
    callback=_read_pairs,
    help="The same with a secret value, which an environment variable holds. Repeatable.",
)
@takes_config
def summary(
    *,
    summary_id: str,
    key_from_env: str | None,
    headers: tuple[Pair, ...],
    hidden: tuple[Pair, ...],
    config_path: Path | None,
    settings: tuple[str, ...],
) -> None:
    """Print the text of a stored summary.

    ID is in the header x-trimtab-summary of the answer, in the log, on the dashboard and in `trimtab inspect`. Only the
    credential of the client that caused the summary can decrypt it. Give the same --config and --set as to `serve`.
    """
    variables, option = (KEY_VARIABLES, "") if key_from_env is None else ((key_from_env,), "--key-from-env")
    keys = [key for name in variables if (key := read_key(name, option))]
    secret = tuple((name, os.environ.get(variable, "")) for name, variable in hidden)
    if not all(value for _, value in secret):
        raise click.BadParameter("one of these environment variables is not set", param_hint="--header-from-env")
    with wrong_use():
        config = load_file(config_path, settings, is_online=False)
        found = asyncio.run(find_summary(config, summary_id, keys, (*headers, *secret)))
    by = "a model has written it" if found.by_model else "a digest, written without a model"
    by = "the provider's own compaction has written it" if found.note else by
    click.echo(f"trimtab: {by}", err=True)
    click.echo("\n".join(map(escape, found.shown.split("\n"))))


async def find_summary(config: Config, summary_id: str, keys: Sequence[str], headers: Sequence[Pair]) -> Summary:
    """The summary with this id, if a credential decrypts it. Raises StoppedError, ConfigError.

    No error says what the store has. keys: each is tried in all forms in which clients send one. headers: that the
    client sends in any case.
    """
    async with open_shared(
        config,
        in_memory="store: memory keeps summaries in the running proxy only; see `trimtab inspect`, or set store",
        at_fault="the store cannot be opened or read; trimtab doctor says why",
    ) as store:
        sealed = await store.get(summary_id)
    secrets_ = dict.fromkeys(_list_secrets(config, keys, headers))
    found = (None if sealed is None else unseal(secret, summary_id, sealed) for secret in secrets_)
    summary = next((one for one in found if one is not None), None)
    if summary is None:
        raise StoppedError(_UNREADABLE if keys else _NO_KEY)
    return summary


def _list_secrets(config: Config, keys: Sequence[str], headers: Sequence[Pair]) -> Iterator[bytes]:
    own_key, path = secrets.token_bytes(KEY_BYTES), find_key_file(config)  # a random key decrypts nothing
    if path is not None and path.exists():  # it is not made here: only the proxy needs it
        try:
            own_key = load_key(path)
        except KeyFileError as error:
            click.echo(f"trimtab: warning: {error}", err=True)
    tenancy = Tenancy(config.tenant, own_key, config.clients.keys, config.clients.names)
    for key in keys:
        for name, form in KEY_FORMS:
            yield tenancy.find_secret([(name, form.format(key)), *headers])
        yield tenancy.find_secret(headers, f"/?key={key}")
        yield tenancy.find_secret([("authorization", f"Bearer {key}"), ("x-api-key", key), *headers])
    yield tenancy.find_secret(headers)
