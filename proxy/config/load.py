"""YAML, environment and command line -> one Config.

Law: the whole configuration is validated at once. Each error names its path, its value and what is allowed, and what
set it: a line of the file, or a variable. Settings have no place. No other module of the configuration reads the
environment or the file. The name of a variable alone decides its key: TRIMTAB_DEFAULTS__HIGH_WATER sets
defaults.high_water. A name that nobody can have meant for a key is no problem: Kubernetes sets TRIMTAB_PORT for
a service that is called trimtab.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from trimtab.proxy.config.document import ConfigError, Document, Path, Place, Problem, has_half_characters, name_path
from trimtab.proxy.config.network import UnusableProxyError
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.config.schema import Config
from trimtab.proxy.config.validation import find_conflicts, validate
from trimtab.proxy.config.values import Slot, list_keys

# Which variables of the environment set which keys.
PREFIX = "TRIMTAB_"
SEPARATOR = "__"  # between the parts of a key's path. Chosen: keys have single underscores.
SHORT_NAMES: Mapping[str, Path] = {"TRIMTAB_UPSTREAM": ("upstream", "base_url"), "TRIMTAB_LISTEN": ("listen",)}
"""Variables that are named otherwise than the key that they set."""
OPTIONS = ("TRIMTAB_CONFIG", "TRIMTAB_LOG_LEVEL", "TRIMTAB_LOG_FORMAT", "TRIMTAB_AUTOCOMPACT_PCT")
"""Variables that set no key: those of the commands' options, and the percentage of load.py."""
MIN_LIKENESS = 0.75
"""The least likeness of a name that is suggested, as difflib measures it. Chosen: one wrong letter in a short name is
above it, and the names that Kubernetes gives are below it."""
NEVER_EMPTY = frozenset({"api_key", "client_keys", "admin_token"})
"""Keys for which an empty variable is a problem: without it, everyone would be let in, or another key be sent."""


class Variable(msgspec.Struct, frozen=True):
    name: str
    path: Path
    slot: Slot
    text: str


class _UnknownNameError(Exception):
    """The name leads to no key; the message says why, to follow the name."""


def read_variables(environment: Mapping[str, str], data: Mapping[str, Any]) -> tuple[list[Variable], list[Problem]]:
    """The variables that set a key, outer keys first, and the problems of their names. An empty variable sets nothing.

    data: that of the file. A name of the user's choice is found in it whatever its case.
    """
    problems: list[Problem] = []
    found: dict[Path, Variable] = {}
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX) or name in OPTIONS or is_unknown(name):
            continue
        try:
            path, slot = _find_key(name, data)
            _check_use(path, text, found)
        except _UnknownNameError as error:
            problems.append(Problem((), f"{name_path((name,))}: {error}"))
            continue
        if text:
            found[path] = Variable(name, path, slot, text)
    return sorted(found.values(), key=lambda variable: len(variable.path)), problems


def is_unknown(name: str) -> bool:
    """Whether a name that begins like a variable of ours sets nothing, and is no key misspelt either."""
    if name in SHORT_NAMES or name in OPTIONS or not name.startswith(PREFIX) or SEPARATOR in name:
        return False
    return name.removeprefix(PREFIX).lower() not in list_keys(Config)


def find_similar(name: str) -> str | None:
    known = [*SHORT_NAMES, *OPTIONS, *_list_names(Slot.of(Config), PREFIX)]
    rests = [known_name.removeprefix(PREFIX) for known_name in known]  # all names have the prefix in common
    rest = name.removeprefix(PREFIX).upper()
    inner = [known_name for known_name in rests if known_name.endswith(f"{SEPARATOR}{rest}")]
    near = inner or get_close_matches(rest, rests, n=1, cutoff=MIN_LIKENESS)
    return f"{PREFIX}{near[0]}" if near else None


def _check_use(path: Path, text: str, found: Mapping[Path, Variable]) -> None:
    if not text and {path[0], path[-1]} & NEVER_EMPTY:
        raise _UnknownNameError("is empty; for no key, write null or unset it")
    if text and path in found:
        raise _UnknownNameError(f"sets the same key as {name_path((found[path].name,))}; unset one of the two")


def _find_key(name: str, data: Mapping[str, Any]) -> tuple[Path, Slot]:
    path: Path = ()
    slot, inner = Slot.of(Config), cast("object", data)
    parts = SHORT_NAMES.get(name) or name.removeprefix(PREFIX).split(SEPARATOR)
    told = PREFIX.removesuffix("_")
    for part in map(str, parts):
        joint = SEPARATOR if path else "_"
        if slot.section is not None:
            key = next((key for key in list_keys(slot.section) if key == part.lower()), None)
            if key is None:
                near = get_close_matches(part.lower(), list_keys(slot.section) if path else (), n=1)
                like = f"{told}{joint}{near[0].upper()}" if near else find_similar(name)
                words = f"names no key; did you mean {like}?" if like else "names no key of the configuration"
                raise _UnknownNameError(words)
        elif slot.is_mapping:
            key = _find_name(part, inner)
        else:
            words = f"{name_path(path)} has no keys of its own; set it as a whole, as YAML in {name_path((told,))}"
            raise _UnknownNameError(words)
        slot = slot.enter(key) or slot
        path, told = (*path, key), f"{told}{joint}{part}"
        inner = inner.get(key) if isinstance(inner, dict) else None
    return path, slot


def _find_name(part: str, written: object) -> str:
    """The name that a part means: one of the file, else itself, capitals in lower case. Raises _UnknownNameError."""
    if not part or has_half_characters(part):
        raise _UnknownNameError("has a part that is no name")
    # A shell cannot set a variable whose name has a hyphen.
    alike = [key for key in written if _fold(key) == _fold(part)] if isinstance(written, dict) else []
    if part in alike:
        return part
    if len(alike) > 1:
        words = f"may mean {' or '.join(name_path((key,)) for key in alike)}; write the name as the file does"
        raise _UnknownNameError(words)
    return alike[0] if alike else part.lower() if part == part.upper() else part


def _fold(name: str) -> str:
    return name.lower().replace("-", "_")


def _list_names(slot: Slot, prefix: str) -> Iterator[str]:
    """The names of all variables whose key is not inside a mapping with names of the user's choice."""
    for key in list_keys(slot.section) if slot.section else ():
        name = f"{prefix}{key.upper()}"
        yield name
        inner = slot.enter(key)
        if inner is not None:
            yield from _list_names(inner, f"{name}{SEPARATOR}")


VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
"""A variable of the environment in a text, with its default if it has one."""
_QUOTES = ("'", '"')
_NULLS = frozenset({"null", "~"})


class Draft(msgspec.Struct):
    """The data so far, and its problems.

    unset: the paths of texts with a variable that is not set.
    empty: the paths of texts with a variable that is set to an empty text, each with its name.
    variables: names of the variables that set a path; empty for a path that a setting has set since.

    A value that is not from the file has no place.
    """

    data: dict[str, Any]
    places: dict[Path, Place]
    problems: list[Problem]
    unset: set[Path] = msgspec.field(default_factory=set)
    empty: dict[Path, str] = msgspec.field(default_factory=dict)
    variables: dict[Path, str] = msgspec.field(default_factory=dict)

    def fill_variables(self, environment: Mapping[str, str]) -> None:
        self.data = self._fill(self.data, (), environment)

    def apply_variable(self, variable: Variable, environment: Mapping[str, str]) -> None:
        """Write a variable into the data. The value is YAML; for a key that is a text, the text as it stands."""
        text, path = variable.text, variable.path
        section = self._open(path, variable.name)
        if isinstance(section, str):
            self.problems.append(Problem((), f"{variable.name}: {section} is not a section in the file"))
            return
        is_other = text.startswith((*_QUOTES, "{") if variable.slot.section else _QUOTES) or text in _NULLS
        is_text = variable.slot.text is not None and not is_other
        section[path[-1]] = self._fill(text if is_text else self._read_value(text, path), path, environment)

    def apply_setting(self, setting: str) -> None:
        dotted, equals, text = setting.partition("=")
        if not equals or not all(dotted.split(".")) or has_half_characters(dotted):
            self.problems.append(Problem((), f"{dotted!r}: a setting must be dotted.key=value"))
            return
        path = tuple(dotted.split("."))
        section = self._open(path)
        if isinstance(section, str):
            self.problems.append(Problem((), f"{dotted}: {section} is not a section"))
            return
        section[path[-1]] = self._read_value(text, path)

    def finish(self) -> Config:
        validated = validate(self.data, Config)
        config = validated.model
        for problem in validated.problems:
            words = f"; ${{{self.empty[problem.path]}}} is empty" if problem.path in self.empty else ""
            # An unset variable leaves an empty text. Report the variable, not the empty text as well.
            self.problems += [] if problem.path in self.unset else [replace(problem, words=problem.words + words)]
        self.problems += [] if config is None else find_conflicts(config, validated.wrong | self.unset)
        if self.problems or config is None:
            raise ConfigError("\n".join(Document(None, self.places).describe(self.problems, self.variables)))
        return config

    def _fill(self, value: Any, path: Path, environment: Mapping[str, str]) -> Any:
        if isinstance(value, dict):
            return {key: self._fill(item, (*path, key), environment) for key, item in value.items()}
        if isinstance(value, list):
            return [self._fill(item, (*path, index), environment) for index, item in enumerate(value)]
        if not isinstance(value, str):
            return value

        def read(match: re.Match[str]) -> str:
            name, default = match.group(1, 2)
            found: str | None = environment.get(name) if default is None else environment.get(name, default)
            if found is None:
                self.problems.append(Problem(path, f"${{{name}}} is not set in the environment and has no default"))
                self.unset.add(path)
            elif not found:
                self.empty[path] = name
            return found or ""

        return VARIABLE.sub(read, value)

    def _open(self, path: Path, variable: str = "") -> dict[Any, Any] | str:
        """The section for the last part of a path, which is forgotten; or the name of a part that is no section."""
        section: dict[Any, Any] = self.data
        for parent in path[:-1]:
            inner = section[parent] = {} if section.get(parent) is None else section[parent]
            if not isinstance(inner, dict):
                return str(parent)
            section = inner
        self.places = {place: at for place, at in self.places.items() if place[: len(path)] != path}
        self.unset = {place for place in self.unset if place[: len(path)] != path}
        self.variables = {place: name for place, name in self.variables.items() if place[: len(path)] != path}
        self.variables[path] = variable
        return section

    def _read_value(self, text: str, path: Path) -> Any:
        try:
            document = Document.parse(text)
        except ConfigError:
            return text
        self.problems += [replace(problem, path=(*path, *problem.path)) for problem in document.problems]
        return document.data


_PERCENTAGE = re.compile("[1-9][0-9]?|100")


def load_file(
    file: FilePath | None, settings: Sequence[str] = (), *, may_be_empty: bool = True, is_online: bool = True
) -> Config:
    """The configuration of a file, with settings over it. None is an empty file. Raises ConfigError.

    An empty file is valid, because every key has a default. A reload passes `may_be_empty=False`: a file that was not
    empty before is probably being written. `is_online` says whether the proxies of the environment apply.
    """
    text = _read_text(file)
    if not may_be_empty and _says_nothing(text):
        raise ConfigError(f"{file}: is empty; write a new file and rename it, so that it is never read half written")
    try:
        return load_config(text, settings=settings, is_online=is_online)
    except ConfigError as error:
        message = str(error)
        raise ConfigError(f"{file}: {message}" if "not valid YAML" in message else message) from error


def load_address(
    file: FilePath | None, settings: Sequence[str] = (), *, environment: Mapping[str, str] | None = None
) -> str:
    environment = os.environ if environment is None else environment
    document = Document.parse(_read_text(file))
    written = document.data if isinstance(document.data, dict) else {}
    draft = Draft({key: value for key, value in written.items() if key == "listen"}, dict(document.places), [])
    draft.fill_variables(environment)
    for variable in read_variables(environment, {})[0]:
        if variable.path == ("listen",):
            draft.apply_variable(variable, environment)
    for setting in settings:
        if setting.startswith("listen="):
            draft.apply_setting(setting)
    return draft.finish().listen


def _read_text(file: FilePath | None) -> str:
    try:
        return file.read_text(encoding="utf-8") if file else ""
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{file}: cannot be read: {reason}") from error


def _says_nothing(text: str) -> bool:
    try:
        return not Document.parse(text).data
    except ConfigError:
        return False  # load_config reports what is wrong with it


def load_config(
    text: str = "",
    *,
    settings: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    is_online: bool = True,
) -> Config:
    """Validate a YAML text, with `dotted.key=value` settings over it. Raises ConfigError with every problem.

    `environment` (by default that of the process) replaces ${NAME} and may set each key by a variable. If `is_online`,
    it names proxies, too (config/network.py). Settings win over the environment, and that wins over the file.
    """
    environment = os.environ if environment is None else environment
    document = Document.parse(text)
    data = {} if document.data is None else document.data
    if not isinstance(data, dict):
        raise ConfigError("the configuration must be a mapping of keys to values")
    draft = Draft(data, dict(document.places), list(document.problems))
    draft.fill_variables(environment)
    variables, problems = read_variables(environment, draft.data)
    draft.problems += problems
    for variable in variables:
        draft.apply_variable(variable, environment)
    for setting in settings:
        draft.apply_setting(setting)
    high_water = _read_percentage(environment.get("TRIMTAB_AUTOCOMPACT_PCT"), draft.problems)
    config = draft.finish()
    config = config if high_water is None else _override_waters(config, high_water, settings)
    try:
        return config.routed_by(environment) if is_online else config
    except UnusableProxyError as error:
        raise ConfigError(str(error)) from None


def find_route_fault(config: Config) -> str | None:
    try:
        config.routed_by(os.environ)
    except UnusableProxyError as error:
        return str(error)
    return None


def find_winning_variables(environment: Mapping[str, str] | None = None) -> list[str]:
    """Variables that set a key, or the percentage: they win over the file."""
    found = os.environ if environment is None else environment
    idle = {"TRIMTAB_CONFIG", "TRIMTAB_LOG_LEVEL", "TRIMTAB_LOG_FORMAT"}
    return [
        name
        for name in sorted(found)
        if name.startswith(PREFIX) and found[name] and not is_unknown(name) and name not in idle
    ]


def find_unknown_variables(environment: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Variables that begin like those of trimtab but set nothing, each with the known name that is most like it."""
    names = sorted(os.environ if environment is None else environment)
    return {name: find_similar(name) for name in names if is_unknown(name)}


def _read_percentage(text: str | None, problems: list[Problem]) -> float | None:
    if not text:
        return None
    if not _PERCENTAGE.fullmatch(text):
        problems.append(Problem((), f"TRIMTAB_AUTOCOMPACT_PCT: {text!r} must be a whole number from 1 to 100"))
        return None
    return int(text) / 100


def _override_waters(config: Config, high_water: float, settings: Sequence[str]) -> Config:
    # Each low water keeps its ratio to the high water. A setting wins over the percentage.
    given = {setting.partition("=")[0].removesuffix(".high_water") for setting in settings if ".high_water=" in setting}
    general = "defaults" in given
    kept = [config.defaults] if general else []
    kept += [profile for name, profile in config.profiles.items() if f"profiles.{name}" in given]

    def override(policy: PolicyConfig) -> dict[str, Any]:
        inherits = general and "high_water" not in policy.model_fields_set
        if inherits or any(policy is one for one in kept):
            return {}
        full = config.over_defaults(policy)
        # Without a number for both there is no ratio: the policy then uses that of the fitted waters.
        high, low = full.high_water, full.low_water
        return {
            "high_water": high_water,
            "low_water": "auto" if high == "auto" or low == "auto" else low / high * high_water,
        }

    return config.change_policies(override)
