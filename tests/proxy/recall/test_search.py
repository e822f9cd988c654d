"""The index of passages: what is found, and in which order."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.recall.search import RARE_PASSAGES, Archive


def fill(*passages: str) -> Archive:
    archive = Archive()
    archive.add(passages)
    return archive


def test_the_passage_with_the_rarest_words_is_the_best() -> None:
    archive = fill("the port is 80", "the port of merlin is 8081", "the host", "the end", "the port")
    assert archive.search(["merlin", "port"], most=5, is_rare=False)[0] == 1
    assert archive.search(["merlin", "port"], most=1, is_rare=False) == [1]
    assert archive.search(["osprey"], most=5, is_rare=False) == []


@pytest.mark.parametrize(
    "name", ["/etc/merlin/port_9.toml", "merlin-db-77fe.corp.example", "a.b@c.example", "OPS-1234"]
)
def test_a_name_is_found_as_it_is_written(name: str) -> None:
    """Not by its words in another order."""
    archive = fill("nothing here", f"it is ({name}), they say", " ".join(reversed(re.findall(r"\w+", name))))
    assert archive.search([name], most=5) == [1]


def test_a_term_of_many_passages_finds_nothing() -> None:
    """It is a common word, unless the model itself asks for it."""
    common = ["error in run"] * (RARE_PASSAGES + 1)
    archive = fill(*common, "a rare one")
    assert archive.search(["error", "run"], most=9) == []
    assert archive.search(["error", "rare"], most=9) == [RARE_PASSAGES + 1]
    assert len(archive.search(["error"], most=9, is_rare=False)) == RARE_PASSAGES + 1


def test_more_passages_are_numbered_on() -> None:
    archive = fill("one", "two")
    archive.add([])
    archive.add(["three"])
    assert archive.search(["three"], most=1) == [2]


@given(terms=st.lists(st.text(max_size=9), max_size=5), passages=st.lists(st.text(max_size=40), max_size=5))
def test_no_text_breaks_a_search(terms: list[str], passages: list[str]) -> None:
    """Whatever is said or asked; the same again gives the same."""
    found = [fill(*passages).search(terms, most=3, is_rare=is_rare) for is_rare in (True, False, True)]
    assert found[0] == found[2]
    assert all(0 <= at < len(passages) for one in found for at in one)


def test_halves_of_pairs_and_the_words_of_the_query_language_are_text() -> None:
    archive = fill("a \ud83d b AND", "NEAR(c)")
    assert archive.search(["AND"], most=2) == [0]
    assert archive.search(['x" OR "b', "\ud83d", "*", "text:"], most=2) == []
