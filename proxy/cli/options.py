"""Shared by several commands: options, the exit after wrong use, and the reading of request bodies."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import IO, Any, NoReturn

import click
import orjson

from trimtab.proxy.compaction.compactor import RefusedError, describe_excess
from trimtab.proxy.compaction.engine import Variant
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.network import OPENAI_HOST, read_host
from trimtab.proxy.config.schema import Config
from trimtab.proxy.models.model_policy import ModelView
from trimtab.proxy.store.opening import data_directory, open_store
from trimtab.proxy.store.store import SummaryStore
from trimtab.proxy.telemetry.logs import FORMATS, LEVELS, configure_log, get_log
from trimtab.proxy.wire.codec import Request, UndecodableError, Unsent
from trimtab.proxy.wire.dialects import DEFAULT, DIALECTS, read_request
from trimtab.rules.pipeline.exceeded import LimitExceededError

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
dialect_option = click.option(
    "--dialect",
    type=click.Choice(DIALECTS),
    default=None,
    help="Dialect of the request: chat completions, OpenAI's Responses, or Anthropic's Messages. Default: guessed from "
    "the request.",
)
table_option = click.option(
    "--table/--json", "as_table", default=None, help="Print a table or JSON. Default: a table on a terminal, else JSON."
)
log_level_option = click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default=None,
    envvar="TRIMTAB_LOG_LEVEL",
    help="Lowest level to log; also TRIMTAB_LOG_LEVEL. Default: the key log.level.",
)
log_format_option = click.option(
    "--log-format",
    type=click.Choice(FORMATS, case_sensitive=False),
    default=None,
    envvar="TRIMTAB_LOG_FORMAT",
    help="Format of log lines; also TRIMTAB_LOG_FORMAT. Default: the key log.format.",
)


def prints_table(*, as_table: bool | None) -> bool:
    return sys.stdout.isatty() if as_table is None else as_table


def usual_recordings() -> Path:
    return data_directory() / "recordings"


def list_exports(config: Config, url: str) -> list[str]:
    upstreams = [config.upstream, *(config.upstreams[name] for name in config.list_reachable() if name is not None)]
    providers = {upstream.provider for upstream in upstreams}
    hosts = {read_host(upstream.base_url) for upstream in upstreams if upstream.provider is None}
    lines = [] if providers == {"anthropic"} else [f"export OPENAI_BASE_URL={url}/v1"]
    if "anthropic" in providers:
        lines.append(f"export ANTHROPIC_BASE_URL={url}")
    elif hosts - {OPENAI_HOST}:
        lines.append(f"export ANTHROPIC_BASE_URL={url}  # if the server has /v1/messages")
    if "azure" in providers:
        lines.append(f"export AZURE_OPENAI_ENDPOINT={url}")
    return lines


class StoppedError(Exception):
    """A command cannot go on. The message says why, and what to do."""


def give_up(message: str, status: int = 1) -> NoReturn:
    click.echo(f"trimtab: {message}", err=True)
    sys.exit(status)


@contextmanager
def wrong_use() -> Iterator[None]:
    """Context manager: an error ends the command with its message; those of a configuration with status 2."""
    try:
        yield
    except StoppedError as error:
        give_up(str(error))
    except ConfigError as error:
        for line in str(error).splitlines():
            click.echo(f"trimtab: {line}", err=True)
        sys.exit(WRONG_USE)


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


def read_key(variable: str, option: str = "") -> str | None:
    """The key in an environment variable; None if it holds none that a header can carry.

    Raises click.BadParameter instead of None if an option names the variable.
    """
    key = os.environ.get(variable, "").strip()
    if key and key.isascii() and key.isprintable():
        return key
    if option:
        message = f"the environment variable {variable} holds no key"
        raise click.BadParameter(message, param_hint=option)
    return None


@dataclass(frozen=True, slots=True)
class Requests:
    """The request bodies in a file: one, or with `jsonl` one in each line."""

    file: IO[bytes]
    dialect: str | None
    jsonl: bool


def takes_requests(verb: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: the command gets Requests as its first argument. `verb`: what it writes per line, for the help."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @file_argument
        @click.option("--jsonl", is_flag=True, help=f"Read one request per line and write {verb}.")
        @dialect_option
        @wraps(command)
        def with_requests(file: IO[bytes], *, jsonl: bool, dialect: str | None, **others: Any) -> None:
            command(Requests(file, dialect, jsonl), **others)

        return with_requests

    return decorate


def for_each_request(
    requests: Requests, work: Callable[[Request, str], None], stand_in: Callable[[bytes], bytes]
) -> NoReturn:
    """Call `work` for each request, and exit. The status is 1 if one could not be decoded or compacted, else 0.

    work: its second argument is a prefix for messages that names the line; empty without `jsonl`.
    stand_in: makes the output of a line that cannot be decoded or compacted, so that each line in gives a line out.
    """
    file, jsonl, failed = requests.file, requests.jsonl, False
    bodies = (line.rstrip(b"\n") for line in file) if jsonl else iter([file.read()])
    for number, body in enumerate(bodies, start=1):
        place = f"line {number}: " if jsonl else ""
        name = getattr(file, "name", "-")
        where = "" if name in {"-", "<stdin>"} else f"{name}: "
        try:
            work(read_request(body, requests.dialect), place)
        except (UndecodableError, LimitExceededError) as error:
            is_unreadable = isinstance(error, UndecodableError)
            reason = _describe_request(requests, body) if is_unreadable else str(error)
            reason = describe_excess(error) if isinstance(error, RefusedError) else reason
            click.echo(f"trimtab: {where}{place}{reason}", err=True)
            if jsonl:
                click.echo(stand_in(body))
            failed = True
    sys.exit(1 if failed else 0)


def _describe_request(requests: Requests, body: bytes) -> str:
    """What a body that cannot be read is not, why, and what it must be."""
    dialect = requests.dialect or DEFAULT.name
    member, place = "input" if dialect == "responses" else "messages", "each line" if requests.jsonl else "it"
    fault = _find_fault(body, member)
    return f"not a {dialect} request, because {fault}; {place} must be a JSON object with `{member}`"


def _find_fault(body: bytes, member: str) -> str:
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return f"it is no JSON at line {error.lineno}, column {error.colno}" if body else "it is empty"
    if not isinstance(told, dict):
        return f"it is {_name_kind(told)}"
    if member not in told:
        return f"it has no `{member}`"
    items = told[member]
    if not isinstance(items, list):
        return f"`{member}` is {_name_kind(items)}, not a list"
    wrong = next((at for at, item in enumerate(items) if not isinstance(item, dict)), None)
    return f"a member of `{member}` is wrong" if wrong is None else f"`{member}[{wrong}]` is {_name_kind(items[wrong])}"


def _name_kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def choose_variant(config: Config, view: ModelView, compactors: Compactors) -> Variant:
    """How the proxy would compact a request of a model that is met for the first time."""
    settings = view.settings
    nonces = config.upstream_for(settings.upstream).strips_nonces
    unsent = Unsent(settings.local_items, settings.drop_tools, nonces=nonces)
    return Variant(compactors.choose(settings, view.name.model), view.policy, unsent)
