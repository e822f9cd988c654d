"""`trimtab compact` and `trimtab count`: request bodies, without any network.

Law: what was done is told on standard error. Sentences and JSON have no text of the conversation; a diff is printed
only if it is asked for.
"""

import re
import sys
from collections.abc import Callable, Collection, Iterator
from difflib import unified_diff
from pathlib import Path
from typing import IO, Any, NoReturn

import click
import msgspec
import orjson
from msgspec import structs
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimtab.proxy.cli.options import dialect_option, file_argument, table_option, takes_config, wrong_use
from trimtab.proxy.cli.tables import add_figures
from trimtab.proxy.compaction import engine
from trimtab.proxy.compaction.compactor import RefusedError, describe_excess
from trimtab.proxy.compaction.engine import Compaction, Variant
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_file
from trimtab.proxy.config.schema import Config
from trimtab.proxy.models.model_policy import ModelView
from trimtab.proxy.telemetry.logs import configure_log, get_log
from trimtab.proxy.wire.codec import Request, UndecodableError
from trimtab.proxy.wire.dialects import DEFAULT, read_request
from trimtab.proxy.wire.transcript.body import Unsent
from trimtab.rules.pipeline.changes import OUTSIDE, Change, Fate
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.tokens.families import find_family


class Requests(msgspec.Struct, frozen=True):
    """The request bodies in a file: one, or with `jsonl` one in each line."""

    file: IO[bytes]
    dialect: str | None
    jsonl: bool


def takes_requests(verb: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: the command gets what Requests takes. `verb`: what it writes per line, for the help."""
    jsonl = click.option("--jsonl", is_flag=True, help=f"Read one request per line and write {verb}.")
    return lambda command: file_argument(jsonl(dialect_option(command)))


def for_each_request(
    requests: Requests, work: Callable[[Request, str], None], stand_in: Callable[[bytes], bytes]
) -> NoReturn:
    """Call `work` with each request and a prefix for messages; exit with 1 if one could not be decoded or compacted.

    stand_in: makes the line of such a request, so that with `jsonl` each line in gives a line out.
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
            reason = describe_excess(error) if isinstance(error, RefusedError) else str(error)
            if isinstance(error, UndecodableError):
                dialect = requests.dialect or DEFAULT.name
                member, each = "input" if dialect == "responses" else "messages", "each line" if jsonl else "it"
                reason = f"not a {dialect} request, because {_find_fault(body, member)}"
                reason += f"; {each} must be a JSON object with `{member}`"
            click.echo(f"trimtab: {where}{place}{reason}", err=True)
            if jsonl:
                click.echo(stand_in(body))
            failed = True
    sys.exit(1 if failed else 0)


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
    wrong = (f"`{member}[{at}]` is {_name_kind(item)}" for at, item in enumerate(items) if not isinstance(item, dict))
    return next(wrong, f"a member of `{member}` is wrong")


def _name_kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def tally(request: Request, model: str, config: Config, compactors: Compactors) -> dict[str, Any]:
    """The tokens of a request, as its model should count them. `vocabulary` is its name, or `heuristic`."""
    settings = config.policy_for(model)
    counted = compactors.choose(settings, model).count_sections(request, settings.memory.tags)
    vocabulary = compactors.name_vocabulary(settings, model)  # what `choose` has found
    ratio = find_family(model).find_scale(vocabulary).ratio
    sections, parts = (each.scale(ratio) for each in counted)
    told = {"model": model, "vocabulary": vocabulary, "tokens": sections.tokens}
    return {**told, "sections": sections._asdict(), "parts": parts._asdict()}


def print_tally(told: dict[str, Any]) -> None:
    table = Table("section", title=f"{told['model'] or 'no model'}, counted by {told['vocabulary']}")
    add_figures(table, ("tokens", "share"))
    for shown in (told["sections"], told["parts"]):
        for name, tokens in shown.items():
            share = f"{tokens / told['tokens']:.1%}" if told["tokens"] else ""
            table.add_row(name.replace("_", " "), f"{tokens:,}", share)
        table.add_section()
    table.add_row("all", f"{told['tokens']:,}", "")
    Console().print(table)


@click.command()
@takes_requests("one line of JSON for each")
@click.option("--model", help="Count as for this model instead of the one in the request.")
@table_option
@takes_config
def count(
    *, model: str | None, as_table: bool | None, config_path: Path | None, settings: tuple[str, ...], **given: Any
) -> None:
    """Count the tokens of a request body, by section. No network is used.

    FILE (or standard input) holds the body. The sections are: system, summary, memory, recent and current. Beside them
    there is a finer view, the parts: system, tools, memory, summary, user, assistant, tool results and format. Both add
    up to all tokens.
    """
    with wrong_use():
        config = load_file(config_path, settings, is_online=False)
    configure_log()
    compactors, requests = Compactors(get_log()), Requests(**given)

    def work(request: Request, _: str) -> None:
        told = tally(request, request.model if model is None else model, config, compactors)
        if as_table if as_table is not None else sys.stdout.isatty() and not requests.jsonl:
            print_tally(told)
        else:
            click.echo(orjson.dumps(told))

    nothing = orjson.dumps({"error": f"not a {requests.dialect or DEFAULT.name} request"})
    for_each_request(requests, work, lambda _: nothing)


def choose_variant(config: Config, view: ModelView, compactors: Compactors) -> Variant:
    settings = view.settings
    nonces = config.upstream_for(settings.upstream).strips_nonces
    unsent = Unsent(settings.local_items, settings.drop_tools, nonces=nonces)
    return Variant(compactors.choose(settings, view.name.model), view.policy, unsent)


_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that could change what a terminal shows, or that cannot be written. A diff shows their escapes."""
_STYLES = {"---": "bold", "+++": "bold", "===": "bold", "@@": "cyan", "-": "red", "+": "green"}
"""The colours of the lines of a diff, by their beginning; the first that fits counts."""


def show(compaction: Compaction, shown: Collection[str], place: str, view: ModelView) -> None:
    """Print the story of a request. shown: `sentences`, `json` or `diff`. `place` begins each line of text."""
    story, compacted = compaction.tell(), compaction.compacted
    if "sentences" in shown:
        for number, one in enumerate(story.sentences):
            said = one.text if one.text.startswith(f"{one.rule}:") or not one.rule else f"{one.rule}: {one.text}"
            text = Text(place + said, style="" if number else "bold")
            text.stylize("cyan", len(place), len(place) + len(one.rule))
            _print(text)
        policy, asked = compaction.planned.policy, compaction.request.max_tokens
        cut = view.settings.describe_cut(policy.model_limit_tokens(asked))
        click.echo(f"{place}{cut}; {policy.describe_limit(asked)}", err=True)
    if "json" in shown:
        told = {name: getattr(compacted, name) for name in ("original_tokens", "sent_tokens", "limit_tokens")}
        told |= {"sentences": list(map(structs.asdict, story.sentences))}
        click.echo(orjson.dumps(told | {"changes": [change.describe() for change in story.changes]}), err=True)
    for line in (line for change in story.changes for line in _diff(change)) if "diff" in shown else ():
        safe = _UNSAFE.sub(lambda found: found[0].encode("unicode_escape", "backslashreplace").decode(), line)
        style = next((style for start, style in _STYLES.items() if safe.startswith(start)), "")
        _print(Text(place + safe, style=style), wraps=False)


def _print(text: Text, *, wraps: bool = True) -> None:
    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        console.print(text, soft_wrap=not wraps)
    else:
        click.echo(text.plain, err=True)


def _diff(change: Change) -> Iterator[str]:
    """A unified diff of one message, with what it is and what was done to it in its first two lines."""
    place = "outside the list of messages" if change.at == OUTSIDE else f"message {change.at}"
    place = f"before message {change.at}" if change.fate is Fate.ADDED else place
    what = f"{place} ({change.role}{f', result of {change.tool}' if change.tool else ''})"
    done = f"{change.fate} by {', '.join(change.rules)}"
    if change.fate is Fate.MOVED:
        yield f"=== {what}: {done}, word for word"
        return
    before, after = f"{what}, {change.tokens_before} tokens", f"{done}, {change.tokens_after} tokens"
    yield from unified_diff(change.before.splitlines(), change.after.splitlines(), before, after, lineterm="")


@click.command()
@takes_requests("one body per line")
@click.option("--explain", is_flag=True, help="Print on standard error, in sentences, what was done and why.")
@click.option(
    "--explain-json", is_flag=True, help="The same as one line of JSON per request, with each changed message."
)
@click.option("--diff", is_flag=True, help="Print on standard error what was changed in each message, as a diff.")
@takes_config
def compact(
    *, explain: bool, explain_json: bool, diff: bool, config_path: Path | None, settings: tuple[str, ...], **given: Any
) -> None:
    """Compact the request body in FILE (or standard input). No network is used.

    The compacted body goes to standard output. If the proxy would ask a model for a summary, the body has a digest
    instead, which is made without a model. With --jsonl, a line that cannot be compacted is written unchanged; the
    status is then 1.

    Messages have the numbers of the request's own list, `messages` or `input`, from 0, without items of the client
    alone. Only --diff prints text of the conversation.
    """
    with wrong_use():
        config = load_file(config_path, settings, is_online=False)
    configure_log()
    compactors, requests = Compactors(get_log()), Requests(**given)
    shown = [kind for kind, asked in (("sentences", explain), ("json", explain_json), ("diff", diff)) if asked]

    def work(request: Request, place: str) -> None:
        view = ModelView.of_unmet(config, request.model)
        compaction = engine.compact(request, choose_variant(config, view, compactors))
        if compaction.refusal is not None:
            raise compaction.refusal
        click.echo(compaction.compacted.body, nl=requests.jsonl)
        if shown:
            show(compaction, shown, place, view)

    for_each_request(requests, work, bytes)
