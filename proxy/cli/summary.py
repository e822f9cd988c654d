"""`trimtab summary`: prints a stored summary to whoever has the credential that paid for it.

Law: no credential is printed. Without the right one, nobody learns whether a summary exists.
"""

import asyncio
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from trimtab.proxy.cli.options import StoppedError, config_option, open_shared, read_key, set_option, wrong_use
from trimtab.proxy.config.load import load_file
from trimtab.proxy.config.schema import Config
from trimtab.proxy.http.tenancy import Tenancy
from trimtab.proxy.store.opening import find_key_file
from trimtab.proxy.summaries.sealing import KEY_BYTES, KeyFileError, load_key, unseal
from trimtab.proxy.telemetry.logs import escape
from trimtab.rules.summary.request import Summary

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
        message = "write NAME=VALUE"
        raise click.BadParameter(message)
    return pairs


def _read_id(_: click.Context, __: click.Parameter, given: str) -> str:
    found = _ID.match(given.strip().lower())
    if found is None:
        message = "an id has 64 hexadecimal digits; copy it from the header x-trimtab-summary"
        raise click.BadParameter(message)
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
@config_option
@set_option
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
        message = "one of these environment variables is not set"
        raise click.BadParameter(message, param_hint="--header-from-env")
    with wrong_use():
        config = load_file(config_path, settings, is_online=False)
        found = asyncio.run(find_summary(config, summary_id, keys, (*headers, *secret)))
    by = "a model has written it" if found.by_model else "a digest, written without a model"
    click.echo(f"trimtab: {by}", err=True)
    click.echo("\n".join(map(escape, found.text.split("\n"))))


async def find_summary(config: Config, summary_id: str, keys: Sequence[str], headers: Sequence[Pair]) -> Summary:
    """The summary with this id, if one of the credentials can decrypt it.

    keys: of the client; each is tried in all forms in which clients send one. headers: that it sends in any case.

    Raises StoppedError, which says nothing about the store's content, and ConfigError if it can never be opened.
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
    tenancy = Tenancy(config.tenant, _read_own_key(config), config.clients.keys, config.clients.names)
    for key in keys:
        for name, form in KEY_FORMS:
            yield tenancy.find_secret([(name, form.format(key)), *headers])
        yield tenancy.find_secret(headers, f"/?key={key}")
        yield tenancy.find_secret([("authorization", f"Bearer {key}"), ("x-api-key", key), *headers])
    yield tenancy.find_secret(headers)


def _read_own_key(config: Config) -> bytes:
    """The key for clients without a credential; a random one, which decrypts nothing, if there is none."""
    path = find_key_file(config)
    if path is not None and path.exists():  # it is not made here: only the proxy needs it
        try:
            return load_key(path)
        except KeyFileError as error:
            click.echo(f"trimtab: warning: {error}", err=True)
    return secrets.token_bytes(KEY_BYTES)
