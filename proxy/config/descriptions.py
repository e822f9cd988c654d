"""What an operator reads about each key: its description and its examples, from `keys.yaml`.

Law: the types of the keys and their defaults are in Python, and everything said about them to people is in that file.
It is read only where somebody reads: for the schema, for editors, and for the reference page.
"""

from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel

Texts = dict[str, dict[str, str | dict[str, Any]]]


class Description(NamedTuple):
    """`examples`: values that a file may have."""

    text: str
    examples: tuple[Any, ...] = ()


@cache
def read_descriptions() -> Texts:
    """The file: by section, the text of each key, or a mapping with `description` and `examples`."""
    texts: Texts = yaml.safe_load(resources.files(__package__).joinpath("keys.yaml").read_text("utf-8"))
    return texts


def describe(section: type[BaseModel], field: str) -> Description:
    texts = read_descriptions()
    said = next(texts[kind.__name__][field] for kind in section.__mro__ if field in texts.get(kind.__name__, ()))
    return Description(said) if isinstance(said, str) else Description(said["description"], tuple(said["examples"]))
