"""`trimtab count`: counts a request's tokens by section, and prints them as JSON or as a table."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console
from rich.table import Table

from trimtab.proxy.cli.options import (
    Requests,
    config_option,
    for_each_request,
    set_option,
    table_option,
    takes_requests,
    wrong_use,
)
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_file
from trimtab.proxy.config.schema import Config
from trimtab.proxy.telemetry.logs import configure_log, get_log
from trimtab.proxy.wire.codec import Request
from trimtab.proxy.wire.dialects import DEFAULT
from trimtab.rules.tokens.families import find_family
from trimtab.rules.tokens.sections import Parts, Sections


@dataclass(frozen=True, slots=True)
class Tally:
    """The tokens of one request, as its model is expected to count them.

    vocabulary: name of the vocabulary that counted, or `heuristic`.
    tokens: the sum of all sections, and of all parts.
    """

    model: str
    vocabulary: str
    tokens: int
    sections: Sections
    parts: Parts

    @classmethod
    def of(cls, request: Request, model: str, config: Config, compactors: Compactors) -> "Tally":
        family, settings = find_family(model), config.policy_for(model)
        counted = compactors.choose(settings, model).count_sections(request, settings.memory.tags)
        sections, parts = counted[0].scale(family.ratio), counted[1].scale(family.ratio)
        return cls(model, compactors.name_vocabulary(settings, model), sections.tokens, sections, parts)

    def describe(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "vocabulary": self.vocabulary,
            "tokens": self.tokens,
            "sections": self.sections._asdict(),
            "parts": self.parts._asdict(),
        }

    def print_table(self) -> None:
        table = Table("section", "tokens", "share", title=f"{self.model or 'no model'}, counted by {self.vocabulary}")
        table.columns[1].justify = table.columns[2].justify = "right"
        for shown in (self.sections, self.parts):
            for name, tokens in shown._asdict().items():
                share = f"{tokens / self.tokens:.1%}" if self.tokens else ""
                table.add_row(name.replace("_", " "), f"{tokens:,}", share)
            table.add_section()
        table.add_row("all", f"{self.tokens:,}", "")
        Console().print(table)


@click.command()
@takes_requests("one line of JSON for each")
@click.option("--model", help="Count as for this model instead of the one in the request.")
@table_option
@config_option
@set_option
def count(
    requests: Requests,
    *,
    model: str | None,
    as_table: bool | None,
    config_path: Path | None,
    settings: tuple[str, ...],
) -> None:
    """Count the tokens of a request body, by section. No network is used.

    FILE (or standard input) holds the body. The sections are: system, summary, memory, recent and current. Beside them
    there is a finer view, the parts: system, tools, memory, summary, user, assistant, tool results and format. Both add
    up to all tokens.
    """
    with wrong_use():
        config = load_file(config_path, settings, is_online=False)
    configure_log()
    compactors = Compactors(get_log())

    def work(request: Request, _: str) -> None:
        tally = Tally.of(request, request.model if model is None else model, config, compactors)
        if as_table if as_table is not None else sys.stdout.isatty() and not requests.jsonl:
            tally.print_table()
        else:
            click.echo(orjson.dumps(tally.describe()))

    nothing = orjson.dumps({"error": f"not a {requests.dialect or DEFAULT.name} request"})
    for_each_request(requests, work, lambda _: nothing)
