"""What `trimtab count` prints: tokens by section, as JSON or as a table."""

from dataclasses import asdict, dataclass, fields

import orjson
from rich.console import Console
from rich.table import Table

from proxy.compaction.pool import Compactors
from proxy.config.schema import Config
from proxy.wire.codecs import DEFAULT
from rules.tokens.families import find_family
from rules.tokens.sections import Sections


@dataclass(frozen=True, slots=True)
class Tally:
    """One request's tokens, as its model is expected to count them; `vocabulary` names what counted."""

    model: str
    vocabulary: str
    tokens: int
    sections: Sections

    def write_json(self) -> bytes:
        """One line of JSON."""
        return orjson.dumps(asdict(self))

    def print_table(self, console: Console) -> None:
        """A row for each section, and their sum."""
        table = Table("section", "tokens", "share", title=f"{self.model or 'no model'}, counted by {self.vocabulary}")
        table.columns[1].justify = table.columns[2].justify = "right"
        for section in fields(self.sections):
            tokens = getattr(self.sections, section.name)
            share = f"{tokens / self.tokens:.1%}" if self.tokens else ""
            table.add_row(section.name.replace("_", " "), f"{tokens:,}", share)
        table.add_section()
        table.add_row("all", f"{self.tokens:,}", "")
        console.print(table)


def tally_body(body: bytes, model: str | None, config: Config, compactors: Compactors) -> Tally:
    """Count a request body; `model` stands for the one that it names. Raises UndecodableError."""
    request = DEFAULT.read(body)
    name = request.model if model is None else model
    family, settings = find_family(name), config.policy_for(name)
    raw = compactors.choose(settings, name).count_sections(request)
    scaled = Sections(**{key: round(family.ratio * tokens) for key, tokens in asdict(raw).items()})
    return Tally(name, compactors.name_vocabulary(settings, name), scaled.tokens, scaled)
