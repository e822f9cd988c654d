"""`trimtab check`: whether a configuration is valid here, and what it means. `trimtab schema`: its JSON Schema.

Law of the schema, which editors and the reference page read: what the loader accepts, the schema accepts. It also
refuses unknown keys, values of a wrong type, and numbers out of range. It cannot check the environment, files, or keys
that contradict each other.
"""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click
import orjson

from trimtab.proxy.cli.options import set_option, wrong_use
from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import (
    VARIABLE,
    find_route_fault,
    find_unknown_variables,
    find_winning_variables,
    load_file,
)
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.config.schema import Config
from trimtab.proxy.store.opening import require_store
from trimtab.proxy.telemetry.spans import require_exporter
from trimtab.rules.policy import Prices


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@set_option
def check(file: Path, settings: tuple[str, ...]) -> None:
    """Validate the configuration in FILE and report every error.

    A package that the configuration needs and that is not installed here is an error, too. No server is asked.
    """
    with wrong_use():
        config = load_file(file, settings, is_online=False)
        faults = []
        for require in (require_store, require_exporter):
            try:
                require(config)
            except ConfigError as error:
                faults.append(str(error))
        if faults:
            raise ConfigError("\n".join(faults))
    if (fault := find_route_fault(config)) is not None:  # concerns the machine that checks, not the file
        click.echo(f"trimtab: warning: {fault}", err=True)
    for name, similar in find_unknown_variables().items():
        near = f"; did you mean {similar}?" if similar else ""
        click.echo(f"trimtab: warning: the variable {name} sets no key{near}", err=True)
    if names := find_winning_variables():
        click.echo(f"trimtab: set by the environment, whatever the file says: {', '.join(names)}", err=True)
    click.echo(f"{file}: valid; entries in models: {len(config.models)}; upstream {config.upstream.base_url}")
    for line in _describe_cuts(config):
        click.echo(line)


def _describe_cuts(config: Config) -> Iterator[str]:
    general = _describe_cut(config, config.defaults)
    yield general
    named: list[tuple[str, PolicyConfig]] = [(f"models: {model.match}", model) for model in config.models]
    named += [(f"profiles: {name}", profile) for name, profile in config.profiles.items()]
    settled = [(name, config.over_defaults(own)) for name, own in named]
    asking = [one.summary for one in (config.defaults, *(full for _, full in settled)) if one.summary.by == "provider"]
    if any(not summary.models and summary.upstream is None for summary in asking):
        yield (
            "summary: by provider: its own note in the Messages and Responses APIs; in chat completions, and wherever"
            " it writes none, a model's summary"
        )
    elif asking:
        yield "summary: by provider has no effect, because summary.model or summary.upstream names who writes"
    for name, full in settled:
        if (told := _describe_cut(config, full)) != general:
            yield f"{name}: {told}"


def _describe_cut(config: Config, settings: PolicyConfig) -> str:
    if (mode := config.mode_of(settings)) == "off":
        return "cut: never (mode: off)"
    window = settings.context_window
    limit = None if window == "auto" else settings.to_policy(Prices()).model_limit_tokens()
    return settings.describe_cut(limit) + ("; it is only reported (mode: observe)" if mode == "observe" else "")


Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NOTES = frozenset({"default", "description", "examples"})
"""Keywords that describe a key and do not restrict its values."""
_VARIABLE = VARIABLE.pattern
_NUMBER = r"^\s*[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*$"
_WORDS = "[01tTfFyYnN]|[Oo][Nn]|[Oo][Ff][Ff]|[Yy][Ee][Ss]|[Nn][Oo]|[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]"
_TEXTS: Final[dict[str, Schema]] = {
    "variable": {
        "description": "A text with a variable of the environment: ${NAME} or ${NAME:-default}.",
        "type": "string",
        "pattern": _VARIABLE,
    },
    "number": {
        "description": "A number in quotes, or a variable of the environment: ${NAME} or ${NAME:-default}.",
        "type": "string",
        "pattern": f"{_VARIABLE}|{_NUMBER}",
    },
    "switch": {
        "description": "true or false in quotes (also on, off, yes, no), or a variable of the environment: ${NAME} or "
        "${NAME:-default}.",
        "type": "string",
        "pattern": f"{_VARIABLE}|^(?:{_WORDS})$",
    },
}
"""What may also be written where a constrained text, a number or a switch is expected.

The loader replaces variables before it validates, so it takes texts in these places.
"""
_TEXT_OF_TYPE = {"integer": "number", "number": "number", "boolean": "switch"}


def make_schema() -> Schema:
    """The JSON Schema, draft 2020-12, of a configuration file of this version.

    Each key is a property with `description`, `default` and, if they help, `examples`. A section is a `$ref` into
    `$defs`. Its variants are in `anyOf`; the last one may be a `$ref` to the texts that stand for a value:
    `#/$defs/variable`, `#/$defs/number` or `#/$defs/switch`.
    """
    schema = Config.model_json_schema()
    sections = schema.pop("$defs")
    for section in sections.values():
        if "enum" in section:  # its docstring is that of the rules, which is not written for operators
            section.pop("description", None)
    return {
        "$schema": DIALECT,
        "$id": f"urn:trimtab:config:{version('trimtab')}",
        "title": "trimtab configuration",
        "description": "The configuration file of trimtab. Every key has a default.",
        **_rewrite({key: value for key, value in schema.items() if key not in {"title", "description"}}),
        "$defs": {**{name: _rewrite(section) for name, section in sections.items()}, **_TEXTS},
    }


def _rewrite(schema: Schema) -> Schema:
    notes = {key: value for key, value in schema.items() if key in _NOTES}
    if isinstance(notes.get("default"), dict) and notes["default"]:
        del notes["default"]  # a section's; each of its keys has its own
    variants = _list_variants({key: value for key, value in schema.items() if key not in _NOTES})
    return {**notes, **(variants[0] if len(variants) == 1 else {"anyOf": variants})}


def _list_variants(schema: Schema) -> list[Schema]:
    if "anyOf" in schema:
        found = [variant for inner in schema["anyOf"] for variant in _list_variants(inner)]
        texts = [variant for variant in found if variant in _REFERENCES]
        texts.sort(key=_refer("variable").__eq__)  # the others take variables, too
        return [variant for variant in found if variant not in texts] + texts[:1]
    schema = {key: value for key, value in schema.items() if key not in {"title", *_NOTES}}
    if "patternProperties" in schema:  # editors complete the keys below a name only by additionalProperties
        [(pattern, inner)] = schema.pop("patternProperties").items()
        schema |= {"additionalProperties": inner, "propertyNames": {"pattern": pattern}}
    for key, value in schema.items():
        if key == "properties":
            schema[key] = {name: _rewrite(inner) for name, inner in value.items()}
        elif key in {"items", "additionalProperties"} and isinstance(value, dict):
            schema[key] = _rewrite(value)
    if schema.get("type") in _TEXT_OF_TYPE:
        return [schema, _refer(_TEXT_OF_TYPE[schema["type"]])]
    is_constrained = schema.get("type") == "string" and len(schema) > 1
    return [schema, _refer("variable")] if is_constrained else [schema]


def _refer(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


_REFERENCES = [_refer(name) for name in _TEXTS]


@click.command()
def schema() -> None:
    """Print the JSON Schema of the configuration. Editors use it to complete and check YAML."""
    click.echo(orjson.dumps(make_schema(), option=orjson.OPT_INDENT_2))
