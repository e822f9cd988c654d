"""A YAML text with the line of each key, and what is wrong with it said in sentences."""

import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from proxy.errors import ConfigError

Path = tuple[str | int, ...]

SECRET_KEYS = frozenset({"api_key", "client_keys", "admin_token", "proxy"})
SHOWN_CHARS = 80
MAX_PLACES = 100_000
"""Keys and items of a file: aliases of aliases make billions of a few lines."""
MAX_NUMBER_BITS = 4096
"""Of a whole number: Python refuses to write one of more than 4300 digits."""
_SECTION_WANTED = frozenset({"model_type", "dict_type", "tuple_type"})
"""Errors where a section was wanted: what stands in its place may be a secret, one level too high."""
_QUOTED = re.compile(r"(?<=[\w:]) '(?!<|.').*", re.DOTALL)
"""From the first quotation on that is neither one character nor the name of a token: it may be a key that begins like
an alias or a tag."""
UNREADABLE = (yaml.YAMLError, ValueError, OverflowError, RecursionError)
"""What a text that is no YAML raises: dates that are none, escapes beyond Unicode, and so on."""
_BOOLEAN = "tag:yaml.org,2002:bool"


class PlainLoader(yaml.SafeLoader):
    """YAML 1.2's booleans: `off` and `no` are words, so that `mode: off` says what it seems to say."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as the base class has it
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _BOOLEAN]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """As the base class does; hexadecimal, too, only as large as Python would write it out in a sentence."""
        number = int(super().construct_yaml_int(node))
        if number.bit_length() > MAX_NUMBER_BITS:
            raise ValueError
        return number


PlainLoader.add_constructor("tag:yaml.org,2002:int", PlainLoader.construct_yaml_int)
PlainLoader.add_implicit_resolver(_BOOLEAN, re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), list("tTfF"))


def read_yaml(text: str) -> Any:
    """What a YAML text says. Raises one of UNREADABLE."""
    try:
        return yaml.load(text, Loader=PlainLoader)  # noqa: S506 - a SafeLoader
    except (ValueError, AttributeError, KeyError, TypeError):  # the loader's own words may quote a key
        message = "a value is not the date or number that it looks like, or not what its tag says"
        raise ValueError(message) from None


@dataclass(frozen=True, slots=True)
class Document:
    """What a YAML text says, and the line (from 1) on which each of its keys stands."""

    data: Any
    lines: Mapping[Path, int]

    @classmethod
    def parse(cls, text: str) -> "Document":
        """Read a YAML text. Raises ConfigError where it is none, or has a key twice."""
        try:
            places = list(islice(_walk(yaml.compose(text, Loader=PlainLoader), ()), MAX_PLACES + 1))
            data = None if len(places) > MAX_PLACES else read_yaml(text)
        except UNREADABLE as error:
            message = f"not valid YAML: {_describe_yaml(error)}"
            raise ConfigError(message) from None  # the parser's error quotes the file, keys and all
        if len(places) > MAX_PLACES:
            message = f"has more than {MAX_PLACES} keys and items, those behind an alias counted each time"
            raise ConfigError(message)
        lines: dict[Path, int] = {}
        twice: list[str] = []
        for path, line in places:
            if path in lines:
                twice.append(f"{name_path(path)} (line {line}): the key stands twice")
            lines[path] = line
        if twice:
            raise ConfigError("\n".join(twice))
        return cls({} if data is None else data, lines)

    def place(self, path: Path) -> str:
        """The path with its line, where that is known."""
        line = self.lines.get(path)
        return name_path(path) if line is None else f"{name_path(path)} (line {line})"


def name_path(path: Path) -> str:
    """`models[0].high_water` for ("models", 0, "high_water")."""
    name = ""
    for part in path:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else str(part)
    return name


def describe_errors(error: ValidationError, document: Document, model: type[BaseModel]) -> list[str]:
    """One line for each thing wrong: where, what value, what is allowed."""
    problems: dict[str, None] = {}
    for item in error.errors(include_url=False):
        path = tuple(part for part in item["loc"] if not _is_variant(part))
        message = item["msg"].removeprefix("Value error, ")
        if not path:
            problems.update(dict.fromkeys(message.split("\n")))
        elif item["type"] == "extra_forbidden":
            problems[f"{document.place(path)}: unknown key{_suggest(path, model)}"] = None
        elif item["type"] == "missing":
            problems[f"{document.place(path)}: is required"] = None
        else:
            wanted = (message[:1].lower() + message[1:]).removeprefix("input ")
            shown = "" if item["type"] in _SECTION_WANTED else _show(path, item["input"])
            problems[f"{document.place(path)}: {shown}{wanted}"] = None
    return list(problems)


def _is_variant(part: str | int) -> bool:
    """Whether a part of pydantic's location names a variant of a union, not a key of the file."""
    return isinstance(part, str) and any(sign in part for sign in "[(,")


def _show(path: Path, value: object) -> str:
    """The value, where it cannot hold a secret."""
    if not SECRET_KEYS.isdisjoint(path) or not isinstance(value, str | int | float | None):
        return ""
    text = str(value)
    if "@" in text or "?" in text or (path[-1] == "store" and "://:" in text):  # addresses with a password
        return ""
    shown = repr(value)
    return f"{shown[:SHOWN_CHARS]} " if len(shown) <= SHOWN_CHARS else f"{shown[:SHOWN_CHARS]}… "


def _suggest(path: Path, model: type[BaseModel]) -> str:
    section = _section_at(path[:-1], model)
    known = [field.alias or name for name, field in section.model_fields.items()] if section else []
    near = get_close_matches(str(path[-1]), known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known here: {', '.join(known)}" if known else ""


def _section_at(path: Path, model: type[BaseModel]) -> type[BaseModel] | None:
    section: type[BaseModel] | None = model
    for part in path:
        if section is None:
            return None
        field = section.model_fields.get(str(part))
        if field is not None:
            section = _section_in(field.annotation)
    return section


def _section_in(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds: itself, or as the values of a mapping or the items of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in {dict, tuple, list, Union, types.UnionType}:
        return next((found for item in get_args(annotation) if (found := _section_in(item))), None)
    return None


def _walk(node: Any, path: Path) -> Iterator[tuple[Path, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*path, key.value), key.start_mark.line + 1
            yield from _walk(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*path, index), value.start_mark.line + 1
            yield from _walk(value, (*path, index))


def _describe_yaml(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {_QUOTED.sub('', error.problem or '')}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
