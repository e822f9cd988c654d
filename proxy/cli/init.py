"""`trimtab init`: questions about the upstream, and a configuration file with the answers.

Law: without a terminal it asks nothing. It overwrites no file unless it is told to. No key is shown or written, only
the name of a variable with one. The file holds what was chosen, and the most useful other keys as comments.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import orjson
import uvloop

from trimtab.proxy.catalogue.prices import find_host, find_window, load_catalogue
from trimtab.proxy.cli.doctor_checks import Answer, ask_upstream
from trimtab.proxy.cli.options import give_up, list_exports, read_key, wrong_use
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.network import OPENAI_HOST, is_local
from trimtab.proxy.config.schema import Config, UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.telemetry.logs import escape

DEFAULT_URL = f"https://{OPENAI_HOST}/v1"
DEFAULT_FILE = Path("trimtab.yaml")
ECONOMIES = ("careful", "balanced", "frugal")
KEY_VARIABLES = {"anthropic": "ANTHROPIC_API_KEY", "azure": "AZURE_OPENAI_API_KEY"}
"""By provider; any other server's is OPENAI_API_KEY. Source: the providers' own libraries."""
MAX_UNKNOWN = 5  # How many models without a known window are written. Chosen: an example for the others.
DEFAULT_ECONOMY = "balanced"
MAX_SHOWN = 12  # how many models are shown at most. Chosen: they fit on a screen with the rest.


class Options(msgspec.Struct, frozen=True):
    """The options of the command; see their help. `asks`: somebody answers; else each answer is the default."""

    upstream: str | None
    key_from_env: str | None
    own_key: bool
    economy: str
    mode: str
    output: Path
    force: bool
    yes: bool
    asks: bool

    def ask(self, question: str, default: str, kind: click.Choice[str] | None = None) -> str:
        return str(click.prompt(question, default=default, type=kind, err=True)) if self.asks else default

    def confirm(self, question: str, *, default: bool) -> bool:
        return click.confirm(question, default=default, err=True) if self.asks else default


class Found(msgspec.Struct, frozen=True):
    """What the upstream answered, and the windows of the models that it lists: its own, or the catalogue's.

    Known windows come first: of a long list only the beginning is shown.
    """

    answer: Answer
    windows: Mapping[str, int | None]

    @property
    def is_reachable(self) -> bool:
        finding = self.answer.finding
        return bool(self.windows) or finding.level != "error" or "the key" in finding.found

    def describe(self) -> Iterator[str]:
        finding = self.answer.finding
        yield f"{finding.subject}: {finding.found}"
        if finding.advice and finding.level != "ok":
            yield f"  what to do: {finding.advice}"
        # Names that a server invents hold no control characters here.
        for name, window in [*self.windows.items()][:MAX_SHOWN]:
            yield f"  {escape(name)}: window {f'{window:,}' if window else 'not known'}"
        if len(self.windows) > MAX_SHOWN:
            yield f"  and {len(self.windows) - MAX_SHOWN} more"


async def probe(upstream: UpstreamConfig, key: str | None) -> Found:
    client, base_url = UpstreamClient(), upstream.base_url
    try:
        answer = await ask_upstream(client, upstream, key)
    finally:
        await client.close()
    load_catalogue((base_url,))
    names = dict.fromkeys((*answer.names, *answer.windows.by_model))
    windows = {name: answer.windows.find(name) or find_window(base_url, name) for name in names}
    return Found(answer, dict(sorted(windows.items(), key=lambda model: model[1] is None)))


def list_unknown(base_url: str, windows: Mapping[str, int | None]) -> list[str]:
    """The models without a known window; of a provider in the catalogue, these have none that matters."""
    is_catalogued = not is_local(base_url) and find_host(base_url) is not None
    return [] if is_catalogued else [name for name, window in windows.items() if window is None]


@click.command()
@click.option(
    "--upstream", metavar="URL", help=f"Server that requests go to. Default: OPENAI_BASE_URL, or {DEFAULT_URL}."
)
@click.option(
    "--key-from-env",
    metavar="NAME",
    help="Environment variable with a key, to ask the server for its models. Default: that of the provider's libraries,"
    " for a server on the internet.",
)
@click.option("--own-key", is_flag=True, help="trimtab sends this key instead of the clients' keys.")
@click.option(
    "--economy",
    type=click.Choice(ECONOMIES),
    default="balanced",
    show_default=True,
    help="careful cuts late and forgets least; frugal cuts early and costs least.",
)
@click.option(
    "--mode",
    type=click.Choice(("enforce", "observe")),
    default="enforce",
    show_default=True,
    help="observe only counts and logs what would be done.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_FILE,
    show_default=True,
    help="File to write; - is standard output.",
)
@click.option("--force", is_flag=True, help="Overwrite the file.")
@click.option("--yes", is_flag=True, help="Ask nothing, and write the file even if the server cannot be reached.")
def init(**given: Any) -> None:
    """Write a configuration file, after a look at the server.

    It asks a few questions on a terminal; elsewhere, options and defaults answer them. It asks the server for its
    models, and says what it found.
    """
    options = Options(**given, asks=_has_terminal() and not given["yes"])
    if not options.force and options.output.exists() and str(options.output) != "-":
        give_up(f"{options.output} exists; choose another file with -o, or overwrite it with --force")
    url = options.upstream or options.ask("URL of the model server", os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL)
    with wrong_use():
        config = load_config(settings=(f"upstream.base_url={url}",), environment={})
    name = _choose_variable(config, options)
    if options.own_key and not name:
        give_up("--own-key needs the name of a variable: --key-from-env NAME")
    with wrong_use():
        upstream = load_config(settings=(f"upstream.base_url={config.upstream.base_url}",)).upstream
    click.echo(f"Asking {upstream.base_url} for its models ...", err=True)
    found = uvloop.run(probe(upstream, read_key(name)))
    for line in found.describe():
        click.echo(line, err=True)
    if not (found.is_reachable or options.yes or options.confirm("Write the file anyway?", default=False)):
        give_up("no file was written; start the server, or use --yes")
    asked = "Shall trimtab send this key for all clients?"
    own_key = name if options.own_key or (name and options.confirm(asked, default=False)) else ""
    text = _write(config, found, own_key, options)
    if str(options.output) == "-":
        click.echo(text, nl=False)
        return
    try:
        with options.output.open("w" if options.force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        give_up(f"{options.output}: {error.strerror}")
    _tell_next(config, options.output, name, own_key)


def _has_terminal() -> bool:
    return sys.stdin.isatty()


def _choose_variable(config: Config, options: Options) -> str:
    """The name of the variable with a key; empty for none. A key itself would stay in the shell's history."""
    if options.key_from_env is not None:
        if not os.environ.get(options.key_from_env):
            click.echo(f"The variable {options.key_from_env} is not set here.", err=True)
        return options.key_from_env
    base_url, provider = config.upstream.base_url, config.upstream.provider
    usual = "" if is_local(base_url) else KEY_VARIABLES.get(provider or "", "OPENAI_API_KEY")
    name = options.ask("Variable with a key for it, only to ask for its models (empty: none)", usual)
    return name if name.isidentifier() else ""


def _write(config: Config, found: Found, own_key: str, options: Options) -> str:
    """The text of the file; checked, because names of models come from the server."""
    economy, mode = options.economy, options.mode
    if options.asks:
        economy = options.ask("careful cuts late, frugal cuts early", economy, click.Choice(ECONOMIES))
        watch = options.confirm("Only observe at first, and change no request?", default=mode == "observe")
        mode = "observe" if watch else "enforce"
    base_url = config.upstream.base_url
    unknown = list_unknown(base_url, found.windows)
    text = write_document(base_url, own_key=own_key, economy=economy, mode=mode, unknown=unknown)
    with wrong_use():
        load_config(text, environment={own_key: "key"} if own_key else {})
    return text


def _tell_next(config: Config, output: Path, name: str, own_key: str) -> None:
    key = f"; clients keep their key, for example {name}" if name else ""
    key = f"; trimtab sends the key in {own_key}, so any key will do there" if own_key else key
    told = f"Wrote {output}. Next:\n  trimtab serve --config {output}\nand in the client's terminal{key}:"
    click.echo("\n  ".join((told, *list_exports(config, f"http://{config.listen}"))), err=True)


_DOCUMENT = """\
# Written by trimtab init. Check it with: trimtab check FILE. What is in comments has no effect.

upstream:
  base_url: {url}
  {key}

{models}

# With observe, trimtab only counts and logs what it would do.
{mode_mark}mode: {mode}

{mark}defaults:
{mark}  economy: {economy}   # careful: cuts late, forgets least. frugal: cuts early, costs least
{inner}max_tool_result_tokens: 4000   # longer tool results are shortened
{inner}summary: {{model: gpt-4o-mini}}   # by default, the model of the request writes summaries

# listen: 127.0.0.1:8790   # only this machine; for other machines set client_keys, too
# client_keys: {{alice: "${{ALICE_KEY}}"}}   # whoever has no such key is refused
# admin_token: ${{ADMIN_TOKEN}}   # the password of the dashboard and the metrics
# dashboard: {{keep_text: true}}   # also show the text of what was changed
# prices: {{input: 1.25, cached_input: 0.125, output: 10, unit: usd}}   # by default, list prices if known
# log: {{format: auto, level: info}}
"""


def write_document(
    base_url: str,
    *,
    own_key: str = "",
    economy: str = DEFAULT_ECONOMY,
    mode: str = "enforce",
    unknown: Sequence[str] = (),
) -> str:
    """The text of a file. own_key: the variable with the key that trimtab keeps; empty if clients bring their own."""
    key = "# api_key: ${OPENAI_API_KEY}   # if it is set, trimtab sends it instead of the clients' keys"
    if own_key:
        key = f"api_key: ${{{own_key}}}   # sent instead of the clients' keys"
    mark, inner = ("# ", "#   ") if economy == DEFAULT_ECONOMY else ("", "  # ")
    models = "# Settings for some models. The first match wins. A window that is not set is asked of the upstream."
    if unknown:
        models = "# The windows of these models are not known; 128000 tokens are assumed. Write the true ones:"
    entries = [f"#   - match: {_quote(name)}" for name in unknown[:MAX_UNKNOWN]] or ['#   - match: "NAME*"']
    return _DOCUMENT.format(
        url=_quote(base_url),
        key=key,
        models="\n".join((models, "# models:", *(f"{entry}\n#     context_window: 128000" for entry in entries))),
        mode_mark="# " if mode == "enforce" else "",
        mode=mode,
        mark=mark,
        economy=economy,
        inner=inner,
    )


def _quote(text: str) -> str:
    """A text as YAML, which has JSON's form of a text, too. `${` would be read as the beginning of a variable."""
    return orjson.dumps(text.replace("${", "$ {")).decode()
