"""How much information a piece of text carries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.summary.digest.statements import Census, Kind, find_kind, read_words

TALK = ("Thanks, that helps a lot.", "Okay, let us go on then.", "What do you think of it?")


def weigh(text: str, *others: str) -> float:
    """The weight of a text among others, and among small talk that was repeated three times."""
    census = Census()
    for each in (text, *others):
        census.add(read_words(each))
    for each in TALK:
        census.add(read_words(each), 3)
    return census.finish().weigh(text, read_words(text))


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("5433", Kind.EXACT),
        ("v2.1", Kind.EXACT),
        ("src/app", Kind.EXACT),
        ("max_retries", Kind.EXACT),
        ("camelCase", Kind.EXACT),
        ("me@example.org", Kind.EXACT),
        ("Petra", Kind.NAME),
        ("database", Kind.WORD),
        ("端口", Kind.LETTERS),
        ("the", Kind.LITTLE),
    ],
)
def test_the_form_of_a_word_shows_its_kind(word: str, kind: Kind) -> None:
    """Digits and signs make it exact; a capital makes it a name."""
    assert find_kind(word) is kind


@pytest.mark.parametrize(
    "fact",
    [
        "The port is 5433.",
        "We met Petra in Ghent.",
        "We chose it because it is easier.",
        "Set `verbose` to off.",
        "我们决定用它",
        "端口是5433",
        "Der Hafen hat die Nummer 12.",
    ],
)
def test_a_fact_weighs_more_than_small_talk(fact: str) -> None:
    """In any language."""
    assert weigh(fact) > 2 * max(weigh(talk) for talk in TALK)


def test_frequent_words_weigh_less() -> None:
    """A rare word is the one that a reader could not guess."""
    assert weigh("The port is 5433.") > weigh("The port is 5433.", *["Ask port 5433 again."] * 20)


def test_capitals_weigh_little_if_each_noun_has_one() -> None:
    """German is such a language."""
    nouns = "wir haben Kaffee und Kuchen und Zeit für Schach"
    assert weigh("da ist Petra", *[nouns] * 9) < weigh("da ist Petra", *[nouns.lower()] * 9)


@given(st.lists(st.text(max_size=80), max_size=6))
def test_any_text_has_a_weight_within_bounds(texts: list[str]) -> None:
    """The weight is never negative."""
    for text in texts:
        assert 0.0 <= weigh(text, *texts) < 7.0


def test_a_fact_is_identified_by_its_exact_words_and_names() -> None:
    """The first word does not count, as it has a capital anyway."""
    census = Census()
    words = read_words("Today Petra opened port 5433.")
    census.add(words)
    assert census.finish().find_keys(words) == {"Petra", "5433"}
