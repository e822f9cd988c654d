"""What users write has the names that it had: configuration keys, commands and options, and exit statuses.

As in `test_told.py`: `WRITE_GOLDEN=1 .venv/bin/pytest -n0 tests/names` writes the files anew, if a change is meant.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import orjson
import pytest
from handbook.reference import metrics
from support.command_line import run_trimtab
from support.golden import check_golden

from trimtab.proxy.cli.main import main
from trimtab.proxy.server.admin.sending import FILES
from trimtab.proxy.telemetry.metrics import Metrics

GONE = "http://127.0.0.1:9/v1"
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
SMALL = ("--set", "defaults.count=heuristic", "--set", "defaults.context_window=4000")
LONG = orjson.dumps({"model": "m", "messages": [{"role": "system", "content": "a word " * 20_000}]})
STORED = ("--set", "store=sqlite:///store.sqlite3")
STATUSES: Mapping[str, tuple[tuple[str, ...], bytes | None]] = {
    "--version": (("--version",), None),
    "an unknown command": (("nothing",), None),
    "check, a right file": (("check", "right.yaml"), None),
    "check, a wrong file": (("check", "wrong.yaml"), None),
    "check, no file": (("check", "missing.yaml"), None),
    "compact": (("compact", *SMALL, "-"), BODY),
    "compact, too long": (("compact", *SMALL, "-"), LONG),
    "compact, no request": (("compact", *SMALL, "-"), b"[]"),
    "count": (("count", *SMALL, "-"), BODY),
    "count, no request": (("count", *SMALL, "-"), b"[]"),
    "compact-session": (("compact-session", "s", *STORED, "--set", "dashboard.enabled=false"), None),
    "compact-session, no such session": (("compact-session", "s", *STORED), None),
    "compact-session, a store in memory": (("compact-session", "s", "--set", "store=memory"), None),
    "forget, nothing learned": (("forget", "m", "--set", "store=sqlite:///store.sqlite3"), None),
    "forget, a store in memory": (("forget", "m", "--set", "store=memory"), None),
    "healthcheck, nobody there": (("healthcheck", "--listen", "127.0.0.1:9"), None),
    "init, no server": (("init", "--upstream", GONE), None),
    "inspect, nothing recorded": (("inspect", "--dir", "."), None),
    "inspect, two bodies": (("inspect", "--sent", "--received"), None),
    "replay, nothing there": (("replay", "."), None),
    "replay, no path": (("replay",), None),
    "schema": (("schema",), None),
    "serve, a wrong key": (("serve", "--set", "no.such=1"), None),
    "serve, no address": (("serve", "--listen", "nowhere"), None),
    "stats, no period": (("stats", "--since", "never"), None),
    "stats, an empty store": (("stats", "--set", "store=sqlite:///store.sqlite3"), None),
    "summary, unknown": (("summary", "0" * 64, "--set", "store=sqlite:///store.sqlite3"), None),
    "wrap, no command": (("wrap",), None),
}
"""Arguments and standard input of commands."""


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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a right and a wrong configuration, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "right.yaml").write_text("mode: observe\n")
    (tmp_path / "wrong.yaml").write_text("mode: wrong\n")
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_exit_statuses() -> None:
    found = {title: run_trimtab(*words, input_bytes=given).exit_code for title, (words, given) in STATUSES.items()}
    check("exit-statuses", "\n".join(f"{title}: {status}" for title, status in found.items()))


def test_metrics() -> None:
    """Each metric with its type, labels and text, also those that no request changes."""
    found = metrics.list_collectors(Metrics())
    check(
        "metrics-declared", "\n".join(f"{one.name} {one.kind} {{{', '.join(one.labels)}}} {one.help}" for one in found)
    )


def test_files_of_the_dashboard() -> None:
    check("page-files", "\n".join(FILES))
