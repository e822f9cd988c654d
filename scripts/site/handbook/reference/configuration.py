"""docs/reference/configuration.md, from the configuration's schema: a section for each mapping."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from handbook.reference.examples import find_example
from handbook.tables import code, plain, write_table
from trimtab.proxy.config.load import SHORT_NAMES
from trimtab.proxy.config.policy import Description, describe
from trimtab.proxy.config.schema import Config
from trimtab.proxy.config.values import Slot

INTRODUCTION = """\
# Configuration

This page lists every key of the YAML file that `trimtab serve --config FILE` reads.

Every key has a default, so an empty file is valid for `trimtab check`. That command validates a file and names every
error in it. An unknown key is an error. `config.example.yaml` in the repository shows all keys at their defaults.

In any text value, `${NAME}` is replaced by the environment variable `NAME`, and `${NAME:-default}` by `default` if the
variable is not set. `--set dotted.key=value` on the command line sets one key. The command line overrides the
environment, and the environment overrides the file.

## Environment variables

Each key has a variable: its path in upper case, joined by two underscores, after `TRIMTAB_`.

```sh
TRIMTAB_MODE=observe                                           # mode
TRIMTAB_DEFAULTS__HIGH_WATER=0.7                               # defaults.high_water
TRIMTAB_UPSTREAMS__LOCAL__BASE_URL=http://127.0.0.1:8000/v1    # upstreams.local.base_url
TRIMTAB_CLIENT_KEYS__ALICE=a-long-random-key                   # client_keys.alice
TRIMTAB_MODELS='[{match: "gpt-*", mode: observe}]'             # models
```

- The value is YAML, as for `--set`. If the key is a text, the value is that text as it stands, unless it is in quotes.
- A list is set as a whole. A section or a mapping may be set as a whole, or key by key. What the file has there is
  replaced; with a variable for one key, the other keys stay.
- A name of your choice, such as `local`, is in lower case if the variable has it in capitals. If the file has the name
  in another case, that name is meant. Set the whole mapping if a name contains two underscores.
- An empty variable sets nothing. For `api_key`, `client_keys` and `admin_token` it is an error; for no key, write
  `null`.
- `${NAME}` in a value is replaced, as in the file.
- A name with two underscores that is no key is an error. Another unknown name is only a warning of `serve`, `check` and
  `doctor`, because Kubernetes sets `TRIMTAB_PORT` and others for a service named `trimtab`.

These variables have names of their own:
"""
PERCENTAGE = (
    "`TRIMTAB_AUTOCOMPACT_PCT`",
    "`high_water` of every policy, in percent: 1 to 100, a whole number. `low_water` keeps its ratio if both are set",
)
TOP = ("## Top level", "The keys outside all sections, with links to the sections.")
_TITLES = ("Key", "Value", "Default", "Meaning")


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the configuration.

    path: dotted; `*` is a name that the user chooses.
    slot: the values that are allowed.
    """

    path: str
    field: FieldInfo
    said: Description
    slot: Slot

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def keys(self) -> type[BaseModel] | None:
        """The section inside this key, if the page has a heading for it."""
        if self.slot.section is not None:
            return None if self.slot.is_optional else self.slot.section  # an optional one is described elsewhere
        if not self.slot.holds_others:
            return None
        inner = self.slot.enter("name") if self.slot.is_mapping else self.slot.enter(0)
        return inner.section if inner else None

    @property
    def default(self) -> Any:
        """The default as plain data."""
        return self.field.get_default(call_default_factory=True)


def list_keys(section: type[BaseModel] = Config, prefix: str = "") -> list[Key]:
    """The keys of a section, in the schema's order."""
    found = []
    for name, field in section.model_fields.items():
        key = field.alias or name
        slot = Slot.of(section).enter(key)
        if slot is not None:
            found.append(Key(f"{prefix}{key}", field, describe(section, name), slot))
    return found


def write() -> str:
    """The page."""
    environment = [(code(name), code(".".join(map(str, path)))) for name, path in SHORT_NAMES.items()]
    parts = [INTRODUCTION, write_table(("Environment variable", "Sets"), [*environment, PERCENTAGE])]
    parts += ["\n\n".join((*TOP, _write_table(list_keys())))]
    parts += _write_sections(list_keys(), {}, 2)
    return "\n".join(parts)


def _write_sections(keys: list[Key], seen: dict[type[BaseModel], str], level: int) -> Iterator[str]:
    """The sections inside these keys, each followed by the sections inside it. `seen`: those already written."""
    for key in keys:
        if key.keys is None:
            continue
        inner = list_keys(key.keys, name_inside(key))
        known = next((name for other, name in seen.items() if issubclass(key.keys, other)), None)
        own = inner if known is None else [one for one in inner if one.name not in _names(known, seen)]
        parts = [f"{'#' * level} {code(key.name)}", plain(key.said.text)]
        if known is not None:
            parts.append(f"Each entry may set every key of [{code(known)}](#{known}).")
        parts += [_write_table(own).rstrip("\n")] if own else []
        parts += [_write_example(key)] if key.said.examples else []
        yield "\n\n".join(parts) + "\n"
        if known is None:
            seen[key.keys] = key.name
            yield from _write_sections(inner, seen, level + 1)


def _names(known: str, seen: dict[type[BaseModel], str]) -> set[str]:
    return {key.name for section, name in seen.items() if name == known for key in list_keys(section)}


def name_inside(key: Key) -> str:
    """The prefix of the keys in a key's section."""
    return f"{key.path}." if key.slot.section is not None else f"{key.path}.*."


def _write_example(key: Key) -> str:
    value: Any = key.said.examples[0]
    for name in reversed(key.path.split(".")):
        value = {name: value}
    text = yaml.safe_dump(value, sort_keys=False)
    return f"```yaml\n# trimtab.yaml\n{text}```"


def _write_table(keys: list[Key]) -> str:
    return write_table(_TITLES, map(_write_row, keys))


def _write_row(key: Key) -> tuple[str, ...]:
    if key.keys is not None:
        kind = "a mapping" if key.slot.section or key.slot.is_mapping else "a list"
        is_list_or_mapping = len(key.slot.variants) > 1 and key.slot.is_mapping
        kind = "a list or a mapping" if is_list_or_mapping else kind
        if key.slot.kind is not key.keys and key.slot.section and not is_list_or_mapping:
            # A text may stand for the mapping.
            see = f"See [{code(key.name)}](#{key.name})."
            return code(key.name), plain(key.slot.words()), code(show(key.default)), see
        return code(key.name), kind, "", f"See [{code(key.name)}](#{key.name})."
    anchor = f'<a id="{key.path.replace(".*", "")}"></a>'
    default = "(required)" if key.field.is_required() else code(show(key.default))
    example = find_example(key.path, key.field, key.said, key.slot)
    shown = "" if example is None else f" Example: {code(show(example))}"
    return anchor + code(key.name), plain(key.slot.words()), default, plain(key.said.text) + shown


def show(value: Any) -> str:
    """A value as it is written in YAML, on one line."""
    if isinstance(value, float) and value == int(value):
        value = int(value)
    plain_value = value.value if isinstance(value, Enum) else list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(plain_value, default_flow_style=True, width=1000).removesuffix("...\n").strip()
