"""The data of a configuration while the environment and settings change it, until it is validated.

Law: every problem says what set its value: a line of the file, or a variable. Settings have no place.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab.proxy.config.assembly.checks import find_conflicts
from trimtab.proxy.config.assembly.environment import Variable, read_variables
from trimtab.proxy.config.assembly.validation import validate
from trimtab.proxy.config.document import ConfigError, Document, Path, Place, Problem, has_half_characters
from trimtab.proxy.config.schema import Config

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
"""A variable of the environment in a text, with its default if it has one."""
_QUOTES = ("'", '"')
_NULLS = frozenset({"null", "~"})


@dataclass(slots=True)
class Draft:
    """The data so far, and its problems.

    unset: the paths of texts with a variable that is not set.
    empty: the paths of texts with a variable that is set to an empty text, each with its name.
    variables: names of the variables that set a path; empty for a path that a setting has set since.

    A value that is not from the file has no place.
    """

    data: dict[str, Any]
    places: dict[Path, Place]
    problems: list[Problem]
    unset: set[Path] = field(default_factory=set)
    empty: dict[Path, str] = field(default_factory=dict)
    variables: dict[Path, str] = field(default_factory=dict)

    def fill(self, environment: Mapping[str, str]) -> None:
        self.data = self._fill(self.data, (), environment)

    def lay_variables(self, environment: Mapping[str, str]) -> None:
        """Write every variable that sets a key into the data. `${NAME}` is replaced in their texts, too."""
        variables, problems = read_variables(environment, self.data)
        self.problems += problems
        for variable in variables:
            self.lay_variable(variable, environment)

    def lay_variable(self, variable: Variable, environment: Mapping[str, str]) -> None:
        """Write a variable into the data. The value is YAML; for a key that is a text, the text as it stands."""
        text, path = variable.text, variable.path
        section = self._open(path, variable.name)
        if isinstance(section, str):
            words = f"{variable.name}: {section} is not a section in the file"
            self.problems.append(Problem((), words))
            return
        is_other = text.startswith((*_QUOTES, "{") if variable.slot.section else _QUOTES) or text in _NULLS
        is_text = variable.slot.text is not None and not is_other
        section[path[-1]] = self._fill(text if is_text else self._read_value(text, path), path, environment)

    def lay_over(self, setting: str) -> None:
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
        # An unset variable leaves an empty text. Report the variable, not the empty text as well.
        self.problems += [self._name_empty(problem) for problem in validated.problems if problem.path not in self.unset]
        self.problems += [] if config is None else find_conflicts(config, validated.wrong | self.unset)
        if self.problems or config is None:
            raise ConfigError("\n".join(Document(None, self.places).describe(self.problems, self.variables)))
        return config

    def _name_empty(self, problem: Problem) -> Problem:
        name = self.empty.get(problem.path)
        return problem if name is None else replace(problem, words=f"{problem.words}; ${{{name}}} is empty")

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
                words = f"${{{name}}} is not set in the environment and has no default"
                self.problems.append(Problem(path, words))
                self.unset.add(path)
            elif not found:
                self.empty[path] = name
            return found or ""

        return VARIABLE.sub(read, value)

    def _open(self, path: Path, variable: str = "") -> dict[Any, Any] | str:
        """The section in which the last part of a path is to be set; the name of a part that is no section.

        What was known about the path is forgotten; it is from the variable now.
        """
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
