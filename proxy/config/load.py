"""YAML, environment and command line -> one Config.

Law: the whole configuration is validated at once. Each error names its path, its value and what is allowed. No other
module of the configuration reads the environment or the file.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from trimtab.proxy.config.assembly.draft import Draft, find_similar, is_unknown, read_variables
from trimtab.proxy.config.document import ConfigError, Document, Problem
from trimtab.proxy.config.network.forward_proxies import UnusableProxyError
from trimtab.proxy.config.policies.policy import PolicyConfig
from trimtab.proxy.config.schema import Config

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
        message = f"{file}: cannot be read: {reason}"
        raise ConfigError(message) from error


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

    `environment` (by default that of the process) replaces ${NAME} and may set each key by a variable
    (assembly/draft.py). If `is_online`, it also names proxies (network/forward_proxies.py). Settings win over the
    environment, and the environment wins over the file.
    """
    environment = os.environ if environment is None else environment
    document = Document.parse(text)
    data = {} if document.data is None else document.data
    if not isinstance(data, dict):
        message = "the configuration must be a mapping of keys to values"
        raise ConfigError(message)
    draft = Draft(data, dict(document.places), list(document.problems))
    draft.fill_variables(environment)
    draft.apply_variables(environment)
    for setting in settings:
        draft.apply_setting(setting)
    high_water = _read_percentage(environment.get("TRIMTAB_AUTOCOMPACT_PCT"), draft.problems)
    config = draft.finish()
    config = config if high_water is None else _override_waters(config, high_water)
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


def _override_waters(config: Config, high_water: float) -> Config:
    # Each low water keeps its ratio to the high water.

    def override(policy: PolicyConfig) -> dict[str, Any]:
        full = config.over_defaults(policy)
        # Without a number for both there is no ratio: the policy then uses that of the fitted waters.
        high, low = full.high_water, full.low_water
        return {
            "high_water": high_water,
            "low_water": "auto" if high == "auto" or low == "auto" else low / high * high_water,
        }

    return config.change_policies(override)
