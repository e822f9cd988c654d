"""A YAML text as plain data, with the place of each key.

Law: a key is the text as it is written in the file. Messages quote only keys from the file, never values.
"""

import re
from collections.abc import Container, Iterator, Mapping
from typing import Any

import msgspec
import yaml


class ConfigError(Exception):
    """The configuration is wrong. The message has one line for each problem."""


Path = tuple[str | int, ...]
Place = tuple[int, int]  # line and column, each from 1

NO_VARIABLES: Mapping[Path, str] = {}
SECRET_KEYS = frozenset({"api_key", "client_keys", "admin_token", "proxy"})
CLIENT_FIELDS = frozenset(
    {"key", "key_file", "expires", "max_concurrent_requests", "over_budget"}
    | {f"{unit}_per_{time}" for unit in ("tokens", "dollars") for time in ("day", "month")}
    | {"tokens_per_minute"}
)
"""The keys of a client. A problem names them, but no client: a name may be a key that stands in the wrong place."""
SHOWN_CHARS = 80  # chosen: a quoted key or value of this length still fits a line of a terminal
MAX_PLACES = 100_000
"""The most keys and items of a file. Chosen: far more than a real file has.

Without it, a few lines of aliases of aliases would expand to billions of items.
"""
MAX_NUMBER_BITS = 4096  # The largest whole number. Chosen: Python refuses to print one of 4300 digits.
_QUOTED = re.compile(r"(?<=[\w:]) '(?!<|.').*", re.DOTALL)
"""The rest of a parser's message from its first quotation on.

Quotations of one character and names of tokens do not count. Others may be a secret that begins like an alias or tag.
"""
_INDENTED_BY_TAB = re.compile(r"[ ]*\t")
_LINE_END = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # the line ends of YAML
_STARRED = "a key or value that begins with * needs quotes, unless it is the alias of an anchor above it"
_PLAIN_KEY = re.compile(r"[\w-]+")
_BOOLEAN = "tag:yaml.org,2002:bool"
_MERGE = "tag:yaml.org,2002:merge"


class PlainLoader(yaml.SafeLoader):
    """A loader with the booleans of YAML 1.2: `off` and `no` are texts, so `mode: off` is the mode `off`."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the base class declares it this way
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _BOOLEAN]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """The number of a node. Raises ValueError if Python could not print it in a message."""
        number = int(super().construct_yaml_int(node))
        if number.bit_length() > MAX_NUMBER_BITS:
            raise ValueError
        return number


PlainLoader.add_constructor("tag:yaml.org,2002:int", PlainLoader.construct_yaml_int)
PlainLoader.add_implicit_resolver(_BOOLEAN, re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), list("tTfF"))


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with the value at a path. The empty path means the whole file, or something that is no key."""

    path: Path
    words: str


class Document(msgspec.Struct, frozen=True):
    data: Any
    places: Mapping[Path, Place]
    problems: tuple[Problem, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Document":
        try:
            reader = _Reader(PlainLoader(text))
            node = reader.loader.get_single_node()
            data = None if node is None else reader.read(node, ())
        except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
            # The parser's own error quotes the file, and so may contain secrets.
            raise ConfigError(f"not valid YAML: {_describe(error, text)}") from None
        return cls(data, reader.places, tuple(reader.problems))

    def describe(self, problems: list[Problem], variables: Mapping[Path, str] = NO_VARIABLES) -> list[str]:
        """A line for each problem, in the order of the text; one that an alias repeats, once.

        variables: by the path that each has set; empty for a path that a setting has set.
        """
        told: dict[object, str] = {}
        for problem in sorted(problems, key=lambda problem: self.places.get(problem.path, (0, 0))):
            place = self.places.get(problem.path)
            name = name_path(problem.path)
            variable = _find_variable(problem.path, variables) if place is None else ""
            where = f"{name} ({variable})" if variable else name if place is None else f"{name} (line {place[0]})"
            key = problem if place is None else (place, problem.words)
            told.setdefault(key, f"{where}: {problem.words}" if where else problem.words)
        return list(told.values())


def name_path(path: Path) -> str:
    """`models[0].high_water` for ("models", 0, "high_water"). A key that is not a plain word is quoted."""
    name = ""
    for part in path:
        name += f"[{part}]" if isinstance(part, int) else f".{_quote(part)}" if name else _quote(part)
        if part in SECRET_KEYS and not isinstance(path[-1], int):
            # what is below it is no key of the configuration, and may be a secret
            return f"{name}.*.{path[-1]}" if part == "client_keys" and path[-1] in CLIENT_FIELDS else name
    return name


def is_within(path: Path, places: Container[Path]) -> bool:
    return any(path[:length] in places for length in range(len(path) + 1))


def has_half_characters(text: str) -> bool:
    """Whether a text contains surrogates; pydantic cannot report a key that does."""
    return any("\ud800" <= char <= "\udfff" for char in text)


def _find_variable(path: Path, variables: Mapping[Path, str]) -> str:
    """The variable that set this path, or what it is in; empty for none."""
    within = (path[:length] for length in range(len(path), 0, -1))
    return next((variables[place] for place in within if place in variables), "")


def _quote(key: str) -> str:
    if _PLAIN_KEY.fullmatch(key) and len(key) <= SHOWN_CHARS:
        return key
    shown = "".join(
        f"\\{char}" if char in '"\\' else char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in key[:SHOWN_CHARS]
    )
    return f'"{shown}"' if len(key) <= SHOWN_CHARS else f'"{shown}…"'


class _TooManyError(ValueError):
    pass


class _Reader(msgspec.Struct):
    loader: PlainLoader
    places: dict[Path, Place] = msgspec.field(default_factory=dict)
    problems: list[Problem] = msgspec.field(default_factory=list)
    count: int = 0

    def read(self, node: yaml.Node, path: Path) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self._read_scalar(node)
        if node.tag != f"tag:yaml.org,2002:{'map' if isinstance(node, yaml.MappingNode) else 'seq'}":
            raise _wrong(node, "a tag that has no meaning here")
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, path)
        return [self._read_at(item, item, (*path, index)) for index, item in enumerate(node.value)]

    def _read_mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        own: set[str] = set()
        for merged in _find_merged(node):  # first, because the mapping's own keys override them
            self._count()
            data.update(self._read_mapping(merged, path))
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise _wrong(key_node, "a key must be a single text")
            key = key_node.value
            if has_half_characters(key):
                raise _wrong(key_node, "a key contains half a character (a lone surrogate)")
            inner = (*path, key)
            value = self._read_at(key_node, value_node, inner)
            if key in own:
                self.problems.append(Problem(inner, "the key appears twice"))
                if isinstance(data[key], dict) and isinstance(value, dict):
                    value = data[key] | value  # so that errors in the first are reported too
            own.add(key)
            data[key] = value
        return data

    def _read_at(self, start: yaml.Node, node: yaml.Node, path: Path) -> Any:
        self._count()
        value = self.read(node, path)
        self.places[path] = (start.start_mark.line + 1, start.start_mark.column + 1)
        return value

    def _count(self) -> None:
        self.count += 1
        if self.count > MAX_PLACES:
            raise _TooManyError

    def _read_scalar(self, node: yaml.ScalarNode) -> Any:
        try:
            return self.loader.construct_object(node)
        except (ValueError, OverflowError, AttributeError, KeyError, TypeError):  # their messages may quote the value
            words = "a value is not the date or number that it looks like, or does not fit its tag"
            raise _wrong(node, words) from None


def _find_merged(node: yaml.MappingNode) -> Iterator[yaml.MappingNode]:
    """The mappings of `<<`; a later one overrides an earlier one. Raises yaml.YAMLError for any other value."""
    for key, value in node.value:
        if key.tag != _MERGE:
            continue
        merged = reversed(value.value) if isinstance(value, yaml.SequenceNode) else [value]
        for mapping in merged:
            if not isinstance(mapping, yaml.MappingNode):
                raise _wrong(value, "<< needs a mapping or a list of mappings")
            yield mapping


def _wrong(node: yaml.Node, words: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=words, problem_mark=node.start_mark)


def _describe(error: Exception, text: str) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        is_alias = error.context == "while scanning an alias" or (error.problem or "").startswith(
            "found undefined alias"
        )
        words = _STARRED if is_alias else error.problem or ""
        return _describe_marked(words, error.problem_mark.line, text)
    if isinstance(error, yaml.reader.ReaderError):
        line = len(_LINE_END.split(text[: error.position]))
        return f"line {line}: the character U+{ord(text[error.position]):04X} is not allowed"
    if isinstance(error, _TooManyError):
        return f"it has more than {MAX_PLACES} keys and items; those of an alias count each time"
    return "it is nested too deeply" if isinstance(error, RecursionError) else "an escape is no valid character"


def _describe_marked(words: str, line: int, text: str) -> str:
    lines = _LINE_END.split(text)
    if "end of stream" not in words and line < len(lines) and _INDENTED_BY_TAB.match(lines[line]):
        words = "it is indented with a tab; YAML needs spaces there"
    elif "'\\t'" in words:
        words = "there is a tab where YAML needs a space, or quotes around the text"
    return f"line {line + 1}: {_QUOTED.sub('', words)}"
