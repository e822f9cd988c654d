"""`trimtab count`: a request's tokens by section, as JSON or as a table."""

import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO

import click
import orjson

from proxy.cli.options import config_option, file_argument, for_each_request, set_option, table_option, wrong_use
from proxy.compaction.pool import Compactors
from proxy.config.load import load_file
from proxy.config.schema import Config
from proxy.telemetry.logs import configure_log, get_log
from proxy.wire.codec import Request
from rules.tokens.families import find_family
from rules.tokens.sections import Sections


@dataclass(frozen=True, slots=True)
class Tally:
    """One request's tokens, as its model is expected to count them; `vocabulary` names what counted."""

    model: str
    vocabulary: str
    tokens: int
    sections: Sections

    @classmethod
    def of(cls, request: Request, model: str, config: Config, compactors: Compactors) -> "Tally":
        """Count a request as this model would."""
        family, settings = find_family(model), config.policy_for(model)
        raw = compactors.choose(settings, model).count_sections(request)
        scaled = Sections(**{key: round(family.ratio * tokens) for key, tokens in asdict(raw).items()})
        return cls(model, compactors.name_vocabulary(settings, model), scaled.tokens, scaled)

    def print_table(self) -> None:
        """A row for each section, and their sum."""
        from rich.console import Console  # noqa: PLC0415 - of no use to `serve`
        from rich.table import Table  # noqa: PLC0415 - the same

        table = Table("section", "tokens", "share", title=f"{self.model or 'no model'}, counted by {self.vocabulary}")
        table.columns[1].justify = table.columns[2].justify = "right"
        for section in fields(self.sections):
            tokens = getattr(self.sections, section.name)
            share = f"{tokens / self.tokens:.1%}" if self.tokens else ""
            table.add_row(section.name.replace("_", " "), f"{tokens:,}", share)
        table.add_section()
        table.add_row("all", f"{self.tokens:,}", "")
        Console().print(table)


@click.command()
@file_argument
@click.option("--jsonl", is_flag=True, help="One request in each line; one line of JSON out for each.")
@click.option("--model", help="Count for this model instead of the one that the request names.")
@table_option
@config_option
@set_option
def count(
    file: IO[bytes],
    *,
    jsonl: bool,
    model: str | None,
    as_table: bool | None,
    config_path: Path | None,
    settings: tuple[str, ...],
) -> None:
    """Count the tokens of a request body from FILE (or standard input), by section. No network."""
    with wrong_use():
        config = load_file(config_path, settings, is_online=False)
    configure_log()
    compactors = Compactors(get_log())

    def work(request: Request, _: str) -> None:
        tally = Tally.of(request, request.model if model is None else model, config, compactors)
        if as_table if as_table is not None else sys.stdout.isatty() and not jsonl:
            tally.print_table()
        else:
            click.echo(orjson.dumps(asdict(tally)))

    for_each_request(file, work, lambda _: b'{"error":"no chat request"}', jsonl=jsonl)
