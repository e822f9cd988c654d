"""`trimtab compact`: compacts request bodies without any network, and tells what was done.

Law: the story goes to standard error. Sentences and JSON have no text of the conversation; a diff is printed only if it
is asked for.
"""

import re
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

import click
import orjson
from rich.console import Console
from rich.text import Text

from trimtab.proxy.cli.options import (
    Requests,
    choose_variant,
    config_option,
    for_each_request,
    set_option,
    takes_requests,
    wrong_use,
)
from trimtab.proxy.compaction import engine
from trimtab.proxy.compaction.compactor import Compacted
from trimtab.proxy.compaction.engine import Compaction
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_file
from trimtab.proxy.models.model_policy import ModelView
from trimtab.proxy.telemetry.logs import configure_log, get_log
from trimtab.proxy.wire.codec import Request
from trimtab.rules.pipeline.changes import OUTSIDE, Change, Fate
from trimtab.rules.pipeline.story import Sentence, Story

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that could change what a terminal shows, or that cannot be written. A diff shows their escapes."""
_STYLES = {"---": "bold", "+++": "bold", "===": "bold", "@@": "cyan", "-": "red", "+": "green"}
"""The colours of the lines of a diff, by their beginning; the first that fits counts."""


class Shown(NamedTuple):
    sentences: bool
    json: bool
    diff: bool

    def __bool__(self) -> bool:
        return any(self[:])


def show(compaction: Compaction, shown: Shown, place: str, view: ModelView) -> None:
    """Print the story of a request, and which rule of cuts holds.

    `place`: begins each line of text, so that the request can be told from others.
    """
    story = compaction.tell()
    if shown.sentences:
        _print_sentences(story, place)
        limit = compaction.planned.policy.describe_limit(compaction.request.max_tokens)
        click.echo(f"{place}{view.settings.describe_cut()}; {limit}", err=True)
    if shown.json:
        click.echo(_write_json(story, compaction.compacted), err=True)
    if shown.diff:
        for change in story.changes:
            _print_lines(_diff(change), place)


def _print_sentences(story: Story, place: str) -> None:
    lines = [place + _begin(one) for one in story.sentences]
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        click.echo("\n".join(lines), err=True)
        return
    for number, (line, one) in enumerate(zip(lines, story.sentences, strict=True)):
        text = Text(line, style="bold" if number == 0 else "")
        if one.rule:
            text.stylize("cyan", len(place), len(place) + len(one.rule))
        console.print(text)


def _begin(one: Sentence) -> str:
    return f"{one.rule}: {one.text}" if one.rule and not one.text.startswith(f"{one.rule}:") else one.text


def _write_json(story: Story, compacted: Compacted) -> bytes:
    told = {
        "original_tokens": compacted.original_tokens,
        "sent_tokens": compacted.sent_tokens,
        "limit_tokens": compacted.limit_tokens,
        "sentences": story.sentences,
        "changes": [change.describe() for change in story.changes],
    }
    return orjson.dumps(told)


def _diff(change: Change) -> Iterator[str]:
    """A unified diff of one message, with what it is and what was done to it in its first two lines."""
    what = f"{_name_place(change)} ({change.role}{f', result of {change.tool}' if change.tool else ''})"
    done = f"{change.fate} by {', '.join(change.rules)}"
    if change.fate is Fate.MOVED:
        yield f"=== {what}: {done}, word for word"
        return
    before, after = f"{what}, {change.tokens_before} tokens", f"{done}, {change.tokens_after} tokens"
    yield from unified_diff(change.before.splitlines(), change.after.splitlines(), before, after, lineterm="")


def _name_place(change: Change) -> str:
    if change.fate is Fate.ADDED:
        return f"before message {change.at}"
    return "outside the list of messages" if change.at == OUTSIDE else f"message {change.at}"


def _print_lines(lines: Iterator[str], place: str) -> None:
    console = Console(stderr=True, highlight=False)
    for line in lines:
        safe = _UNSAFE.sub(lambda found: found[0].encode("unicode_escape", "backslashreplace").decode(), line)
        if console.is_terminal:
            style = next((style for start, style in _STYLES.items() if safe.startswith(start)), "")
            console.print(Text(place + safe, style=style), soft_wrap=True)
        else:
            click.echo(place + safe, err=True)


@click.command()
@takes_requests("one body per line")
@click.option("--explain", is_flag=True, help="Print on standard error, in sentences, what was done and why.")
@click.option(
    "--explain-json", is_flag=True, help="The same as one line of JSON per request, with each changed message."
)
@click.option("--diff", is_flag=True, help="Print on standard error what was changed in each message, as a diff.")
@config_option
@set_option
def compact(
    requests: Requests,
    *,
    explain: bool,
    explain_json: bool,
    diff: bool,
    config_path: Path | None,
    settings: tuple[str, ...],
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
    compactors = Compactors(get_log())
    shown = Shown(explain, explain_json, diff)

    def work(request: Request, place: str) -> None:
        view = ModelView.of_unmet(config, request.model)
        compaction = engine.compact(request, choose_variant(config, view, compactors))
        if compaction.refusal is not None:
            raise compaction.refusal
        click.echo(compaction.compacted.body, nl=requests.jsonl)
        if shown:
            show(compaction, shown, place, view)

    for_each_request(requests, work, bytes)
