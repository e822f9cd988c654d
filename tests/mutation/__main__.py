"""Mutates the program in one place at a time, and shows where no test sees it. `tests/mutants --help` says how."""

import subprocess
import sys
import tomllib
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import click
import orjson
from mutation.judge import STAGES, judge
from mutation.mutants import Mutant, find_mutants, list_modules

EQUIVALENTS = Path(__file__).parent / "equivalents.toml"
NAME = ("module", "function", "operator", "before", "ordinal")
STATES = (*STAGES, "live", "equivalent")


def read_equivalents(file: Path) -> dict[tuple[Any, ...], str]:
    """The names of mutants that no test can see, with the reasons."""
    entries = tomllib.loads(file.read_text("utf-8")).get("equivalent", [])
    return {tuple(entry.get(key, 0) for key in NAME): entry["reason"] for entry in entries}


def find_changed(root: Path, revision: str) -> list[str]:
    """The modules that differ from where this branch left a revision."""
    command = ["git", "diff", "--name-only", "--diff-filter=d", "--merge-base", revision]
    told = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return sorted(set(told.split()) & set(list_modules(root)))


def find_within(root: Path, paths: tuple[str, ...]) -> list[str]:
    """The modules that are or lie in one of these paths; all without any."""
    wanted = [Path(path).resolve() for path in paths]
    return [each for each in list_modules(root) if not wanted or {root / each, *(root / each).parents} & {*wanted}]


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(exists=True))
@click.option("--number", default=50, show_default=True, help="How many mutants; 0 for all.")
@click.option(
    "--seed", default=7, show_default=True, help="Chooses which. An edit elsewhere leaves the choice as it is."
)
@click.option("--changed", is_flag=False, flag_value="main", metavar="[REV]", help="Only modules that differ from REV.")
@click.option("--json", "file", type=click.Path(), help="Write each mutant and what became of it to this file.")
def main(paths: tuple[str, ...], number: int, seed: int, changed: str | None, file: str | None) -> None:
    """Change the program in one place at a time, and print each change that no test sees.

    PATHS are modules or folders; without any, all are meant. The exit status is 1 if a mutant lives that is not in
    tests/mutation/equivalents.toml, or if that file names one that does not exist.
    """
    root = Path.cwd()
    modules = find_within(root, paths)
    if changed is not None:
        modules = sorted(set(modules) & set(find_changed(root, changed)))
    equivalents = read_equivalents(EQUIVALENTS)
    stale = set(equivalents) - {mutant.name for mutant in find_mutants(root, _known(root, equivalents))}
    sample = sorted(find_mutants(root, modules), key=lambda mutant: mutant.rank(seed))[: number or None]
    todo = [each for each in sample if each.name not in equivalents]
    states = dict.fromkeys(sample, ("equivalent", "")) | dict.fromkeys(todo, ("live", ""))
    for mutant, stage, killer in judge(root, todo, partial(click.echo, err=True)):
        states[mutant] = (stage, killer)
    for mutant in todo:
        if states[mutant] == ("live", ""):
            click.echo(f"live: {mutant}")
    if file is not None:
        Path(file).write_bytes(orjson.dumps([_describe(mutant, *state) for mutant, state in states.items()]))
    _print_table({mutant: state for mutant, (state, _) in states.items()})
    for name in sorted(stale):
        click.echo(f"{EQUIVALENTS.name}: there is no such mutant any more: {name}", err=True)
    sys.exit(bool(stale) or any(state == "live" for state, _ in states.values()))


def _known(root: Path, equivalents: dict[tuple[Any, ...], str]) -> list[str]:
    return sorted({module for module, *_ in equivalents if (root / module).is_file()})


def _describe(mutant: Mutant, state: str, killer: str) -> dict[str, Any]:
    return {key: getattr(mutant, key) for key in (*NAME, "line", "after")} | {"state": state, "by": killer}


def _print_table(states: dict[Mutant, str]) -> None:
    """The numbers of each room, and of all."""
    counts = Counter((room, state) for mutant, state in states.items() for room in (mutant.room, "all"))
    click.echo(f"| {'room':<20} | mutants | " + " | ".join(STATES) + " |")
    click.echo(f"| {'-' * 20} | ------: | " + " | ".join(f"{'-' * (len(state) - 1)}:" for state in STATES) + " |")
    rooms = [*sorted({mutant.room for mutant in states}), "all"]
    for room in rooms:
        each = [counts[room, state] for state in STATES]
        cells = " | ".join(f"{count:>{len(state)}}" for count, state in zip(each, STATES, strict=True))
        click.echo(f"| {room:<20} | {sum(each):>7} | {cells} |")


if __name__ == "__main__":
    main()
