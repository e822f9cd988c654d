"""What is said of each key: the table of descriptions beside the models of the keys."""

import pytest
from pydantic import BaseModel

from trimtab.proxy.config.policy import Section, describe, read_descriptions


def _list_sections(kind: type[BaseModel] = Section) -> list[type[BaseModel]]:
    return [each for found in kind.__subclasses__() for each in (found, *_list_sections(found))]


SECTIONS = {one.__name__: one for one in _list_sections() if one.__module__.startswith("trimtab.")}


def test_each_key_is_described_once_and_nothing_else_is() -> None:
    """A key without a sentence fails, and so does a sentence without its key."""
    own = {name: {key for key in one.__annotations__ if not key.startswith("_")} for name, one in SECTIONS.items()}
    assert {name: set(keys) for name, keys in read_descriptions().items()} == {
        name: own[name] for name in own if own[name]
    }


@pytest.mark.parametrize("name", SECTIONS)
def test_an_operator_reads_whole_sentences(name: str) -> None:
    """Each begins with a capital letter and ends with a full stop; inherited keys have those of their own section."""
    for field in SECTIONS[name].model_fields:
        said = describe(SECTIONS[name], field)
        assert said.text[0].isupper() or said.text.startswith("trimtab")
        assert said.text.endswith(".")
