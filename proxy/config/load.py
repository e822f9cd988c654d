"""YAML, environment and command line -> one Config.

Law: validated whole, every error at once, each with its path, its value and what is allowed. The only module that
reads the environment, and the configuration's file.
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
"""Environment variables that stand for one key."""

_PERCENTAGE = re.compile("[1-9][0-9]?|100")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def load_file(
    file: FilePath | None, settings: Sequence[str] = (), *, may_be_empty: bool = True, is_online: bool = True
) -> Config:
    """The configuration in a file, with settings laid over it; None stands for an empty one. Raises ConfigError.

    One that says nothing is valid, for every key has a default; where it `may_be_empty` no more, it is being written.
    Proxies of the environment count for who `is_online`.
    """
    text = _read_text(file)
    if not may_be_empty and _says_nothing(text):
        message = f"{file}: says nothing; write another file and rename it, so that it is never read half written"
        raise ConfigError(message)
    try:
        return load_config(text, settings=settings, is_online=is_online)
    except ConfigError as error:
        message = str(error)
        raise ConfigError(f"{file}: {message}" if "not valid YAML" in message else message) from error


def load_address(
    file: FilePath | None, settings: Sequence[str] = (), *, environment: Mapping[str, str] | None = None
) -> str:
    """Where the proxy listens by `load_file`'s configuration, whatever else is wrong in it. Raises ConfigError."""
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
    """Settings that stand in the environment."""
    return [f"{key}={environment[name]}" for name, key in ENVIRONMENT_KEYS.items() if environment.get(name)]


def _says_nothing(text: str) -> bool:
    """Whether a YAML text has nothing in it: blanks, comments, the mark of a beginning."""
    try:
        return not Document.parse(text).data
    except ConfigError:
        return False  # it is told what is wrong with it


def load_config(
    text: str = "",
    *,
    settings: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    is_online: bool = True,
) -> Config:
    """Validate a YAML text, with `dotted.key=value` settings laid over it. Raises ConfigError with every problem.

    `environment` (the process's own by default) fills ${NAME} and may set TRIMTAB_UPSTREAM, TRIMTAB_LISTEN and
    TRIMTAB_AUTOCOMPACT_PCT. Settings win over the environment, and that over the file. Unless `is_online` is false, it
    names proxies, too (network/forward_proxies.py).
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
    """What keeps `serve` from using the proxies that the process's environment names; None if nothing does."""
    try:
        config.routed_by(os.environ)
    except UnusableProxyError as error:
        return str(error)
    return None


@dataclass(slots=True)
class _Draft:
    """What a file says, as the environment and settings change it, and what is wrong with it so far.

    `unset` are the paths of texts whose variables are not set. A value that came from elsewhere has no place.
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

        return _VARIABLE.sub(read, value)

    def lay_over(self, setting: str) -> None:
        """Write `dotted.key=value` into the data; the value is YAML."""
        dotted, equals, text = setting.partition("=")
        if not equals or not all(dotted.split(".")) or has_half_characters(dotted):
            self.problems.append(Problem((), f"{dotted!r}: a setting is written dotted.key=value"))
            return
        *parents, last = path = tuple(dotted.split("."))
        section = self.data
        for parent in parents:
            inner = section.setdefault(parent, {})
            if not isinstance(inner, dict):
                self.problems.append(Problem((), f"{dotted}: {parent} is no section"))
                return
            section = inner
        section[last] = self._read_value(text, path)
        self.places = {place: at for place, at in self.places.items() if place[: len(path)] != path}
        self.unset = {place for place in self.unset if place[: len(path)] != path}

    def finish(self) -> Config:
        """The configuration. Raises ConfigError with every problem, those found before, too."""
        validated = validate(self.data, Config)
        config = validated.model
        # What is wrong with an empty text is only that its variable is not set.
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
    """The configuration with one high water everywhere; each low water keeps its share of it."""

    def override(policy: P) -> P:
        full = config.over_defaults(policy)
        # A low water without a high one to be a share of stands to it as the fitted ones do.
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
