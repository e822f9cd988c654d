"""YAML, environment and command line -> one Config.

Law: the whole configuration is validated at once. Each error names its path, its value and what is allowed. No other
module of the configuration reads the environment or the file.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, TypeVar

from proxy.config.checks import find_conflicts
from proxy.config.document import Document, Path, Place, Problem, has_half_characters
from proxy.config.errors import ConfigError
from proxy.config.network.forward_proxies import UnusableProxyError
from proxy.config.policies.policy import PolicyConfig
from proxy.config.schema import Config
from proxy.config.validation import validate

P = TypeVar("P", bound=PolicyConfig)

ENVIRONMENT_KEYS = {"TRIMTAB_UPSTREAM": "upstream.base_url", "TRIMTAB_LISTEN": "listen"}
"""Environment variables that each set one key."""

_PERCENTAGE = re.compile("[1-9][0-9]?|100")
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
"""A variable of the environment in a text, with its default if it has one."""


def load_file(
    file: FilePath | None, settings: Sequence[str] = (), *, may_be_empty: bool = True, is_online: bool = True
) -> Config:
    """The configuration of a file, with settings over it. None is an empty file. Raises ConfigError.

    An empty file is valid, because every key has a default. A reload passes `may_be_empty=False`: a file that was not
    empty before is probably being written. `is_online` says whether the proxies of the environment apply.
    """
    text = _read_text(file)
    if not may_be_empty and _says_nothing(text):
        message = f"{file}: is empty; write a new file and rename it, so that it is never read half written"
        raise ConfigError(message)
    try:
        return load_config(text, settings=settings, is_online=is_online)
    except ConfigError as error:
        message = str(error)
        raise ConfigError(f"{file}: {message}" if "not valid YAML" in message else message) from error


def load_address(
    file: FilePath | None, settings: Sequence[str] = (), *, environment: Mapping[str, str] | None = None
) -> str:
    """The address that `load_file`'s configuration listens on. Other keys may be wrong. Raises ConfigError."""
    environment = os.environ if environment is None else environment
    document = Document.parse(_read_text(file))
    written = document.data if isinstance(document.data, dict) else {}
    draft = _Draft({key: value for key, value in written.items() if key == "listen"}, dict(document.places), [])
    draft.fill(environment)
    for setting in (*_read_environment(environment), *settings):
        if setting.startswith("listen="):
            draft.lay_over(setting)
    return draft.finish().listen


def _read_text(file: FilePath | None) -> str:
    try:
        return file.read_text(encoding="utf-8") if file else ""
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        message = f"{file}: cannot be read: {reason}"
        raise ConfigError(message) from error


def _read_environment(environment: Mapping[str, str]) -> list[str]:
    return [f"{key}={environment[name]}" for name, key in ENVIRONMENT_KEYS.items() if environment.get(name)]


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

    `environment` (by default that of the process) replaces ${NAME} and may set TRIMTAB_UPSTREAM, TRIMTAB_LISTEN and
    TRIMTAB_AUTOCOMPACT_PCT. If `is_online`, it also names proxies (network/forward_proxies.py). Settings win over the
    environment, and the environment wins over the file.
    """
    environment = os.environ if environment is None else environment
    document = Document.parse(text)
    data = {} if document.data is None else document.data
    if not isinstance(data, dict):
        message = "the configuration must be a mapping of keys to values"
        raise ConfigError(message)
    draft = _Draft(data, dict(document.places), list(document.problems))
    draft.fill(environment)
    for setting in (*_read_environment(environment), *settings):
        draft.lay_over(setting)
    high_water = _read_percentage(environment.get("TRIMTAB_AUTOCOMPACT_PCT"), draft.problems)
    config = draft.finish()
    config = config if high_water is None else _override_waters(config, high_water)
    try:
        return config.routed_by(environment) if is_online else config
    except UnusableProxyError as error:
        raise ConfigError(str(error)) from None


def find_route_fault(config: Config) -> str | None:
    """Why `serve` cannot use the proxies of the process's environment; None if it can."""
    try:
        config.routed_by(os.environ)
    except UnusableProxyError as error:
        return str(error)
    return None


@dataclass(slots=True)
class _Draft:
    """The data of a file while the environment and settings change it, and its problems so far.

    `unset`: the paths of texts with a variable that is not set. A value that is not from the file has no place.
    """

    data: dict[str, Any]
    places: dict[Path, Place]
    problems: list[Problem]
    unset: set[Path] = field(default_factory=set)

    def fill(self, environment: Mapping[str, str]) -> None:
        """Replace every ${NAME} and ${NAME:-default} in the texts."""
        self.data = self._fill(self.data, (), environment)

    def _fill(self, value: Any, path: Path, environment: Mapping[str, str]) -> Any:
        if isinstance(value, dict):
            return {key: self._fill(item, (*path, key), environment) for key, item in value.items()}
        if isinstance(value, list):
            return [self._fill(item, (*path, index), environment) for index, item in enumerate(value)]
        if not isinstance(value, str):
            return value

        def read(match: re.Match[str]) -> str:
            name, default = match.group(1, 2)
            if name not in environment and default is None:
                words = f"${{{name}}} is not set in the environment and has no default"
                self.problems.append(Problem(path, words))
                self.unset.add(path)
            return environment.get(name, default or "")

        return VARIABLE.sub(read, value)

    def lay_over(self, setting: str) -> None:
        """Write `dotted.key=value` into the data. The value is YAML, or else text."""
        dotted, equals, text = setting.partition("=")
        if not equals or not all(dotted.split(".")) or has_half_characters(dotted):
            self.problems.append(Problem((), f"{dotted!r}: a setting must be dotted.key=value"))
            return
        *parents, last = path = tuple(dotted.split("."))
        section = self.data
        for parent in parents:
            inner = section.setdefault(parent, {})
            if not isinstance(inner, dict):
                self.problems.append(Problem((), f"{dotted}: {parent} is not a section"))
                return
            section = inner
        section[last] = self._read_value(text, path)
        self.places = {place: at for place, at in self.places.items() if place[: len(path)] != path}
        self.unset = {place for place in self.unset if place[: len(path)] != path}

    def finish(self) -> Config:
        """The configuration. Raises ConfigError with every problem, including those found earlier."""
        validated = validate(self.data, Config)
        config = validated.model
        # An unset variable leaves an empty text. Report the variable, not the empty text as well.
        self.problems += [problem for problem in validated.problems if problem.path not in self.unset]
        self.problems += [] if config is None else find_conflicts(config, validated.wrong | self.unset)
        if self.problems or config is None:
            raise ConfigError("\n".join(Document(None, self.places).describe(self.problems)))
        return config

    def _read_value(self, text: str, path: Path) -> Any:
        try:
            document = Document.parse(text)
        except ConfigError:
            return text
        self.problems += [replace(problem, path=(*path, *problem.path)) for problem in document.problems]
        return document.data


def _read_percentage(text: str | None, problems: list[Problem]) -> float | None:
    if not text:
        return None
    if not _PERCENTAGE.fullmatch(text):
        problems.append(Problem((), f"TRIMTAB_AUTOCOMPACT_PCT: {text!r} must be a whole number from 1 to 100"))
        return None
    return int(text) / 100


def _override_waters(config: Config, high_water: float) -> Config:
    # Each low water keeps its ratio to the high water.

    def override(policy: P) -> P:
        full = config.over_defaults(policy)
        # Without a number for both there is no ratio: the policy then uses that of the fitted waters.
        high, low = full.high_water, full.low_water
        low_water = "auto" if high == "auto" or low == "auto" else low / high * high_water
        return policy.model_copy(update={"high_water": high_water, "low_water": low_water})

    return config.model_copy(
        update={
            "defaults": override(config.defaults),
            "models": tuple(map(override, config.models)),
            "profiles": {name: override(profile) for name, profile in config.profiles.items()},
        }
    )
