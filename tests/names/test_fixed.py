"""What users write has the names that it had: configuration keys, commands and options.

As in `test_told.py`: `WRITE_GOLDEN=1 .venv/bin/pytest -n0 tests/names` writes the files anew, if a change is meant.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import click
import orjson
from handbook.reference import metrics
from support.command_line import run_trimtab
from support.golden import check_golden

from trimtab.proxy.cli.main import main
from trimtab.proxy.server.admin.sending import FILES
from trimtab.proxy.telemetry.metrics import Metrics


def check(name: str, text: str) -> None:
    """Compare a text with a file of names."""
    check_golden(f"names/{name}", {name: text})


def test_configuration_keys() -> None:
    """Each key with its default; how it may be written is in docs/reference/trimtab.schema.json."""
    schema = orjson.loads(run_trimtab("schema").stdout)
    check("configuration", "\n".join(_walk_keys("", schema, schema["$defs"])))


def _walk_keys(path: str, spec: Any, named: Mapping[str, Any]) -> Iterator[str]:
    for each in (spec, *spec.get("anyOf", ())):
        found = named.get(each.get("$ref", "").rpartition("/")[2], each)
        for name, inner in found.get("properties", {}).items():
            default = f" = {orjson.dumps(inner['default']).decode()}" if "default" in inner else ""
            yield f"{path}{name}{default}"
            yield from _walk_keys(f"{path}{name}.", inner, named)
        for member, sign in (("items", "[]."), ("additionalProperties", "*.")):
            if isinstance(found.get(member), dict):
                yield from _walk_keys(
                    f"{path.removesuffix('.')}{sign if sign == '[].' else '.*.'}", found[member], named
                )


def test_commands_and_options() -> None:
    """Each option with the kind of its value, its default, and its variable."""
    lines = [line for name in sorted(main.commands) for line in _describe(name, main.commands[name])]
    check("commands", "\n".join(lines))


def _describe(name: str, command: click.Command) -> Iterator[str]:
    yield name
    for one in command.params:
        told = one.to_info_dict()
        names = ", ".join((*told["opts"], *told["secondary_opts"]))
        marks = [word for word in ("required", "multiple", "is_flag", "hidden") if told.get(word)]
        kinds = told["type"].get("choices") or (told["type"]["name"],)
        default = told["default"] if isinstance(told["default"], str | int | float) else None
        kept = (
            f"default {default}" if default not in {None, False} else "",
            f"${told.get('envvar')}" if told.get("envvar") else "",
        )
        yield "  " + " ".join([names, "|".join(map(str, kinds)), *marks, *filter(None, kept)])


def test_metrics() -> None:
    """Each metric with its type, labels and text, also those that no request changes."""
    found = metrics.list_collectors(Metrics())
    check(
        "metrics-declared", "\n".join(f"{one.name} {one.kind} {{{', '.join(one.labels)}}} {one.help}" for one in found)
    )


def test_files_of_the_dashboard() -> None:
    check("page-files", "\n".join(FILES))
