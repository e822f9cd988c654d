"""A text is cut between characters as readers see them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import count

from trimtab.rules.results.json_records import cut_string
from trimtab.rules.results.select import split_units
from trimtab.rules.text.head_tail import ceil_boundary, floor_boundary, measure_bytes, truncate_text

CHARACTERS = {
    "Chinese": "漢",
    "half-width Japanese with voicing": "\uff76\uff9e",
    "a Korean syllable": "한",
    "Korean jamo": "\u1112\u1161\u11ab",
    "two leading jamo": "\u1107\u1109\u1161",
    "a leading jamo before a syllable": "\u1100\uac00",
    "joined Devanagari consonants": "\u0915\u094d\u0937",
    "joined consonants with a joiner": "\u0915\u094d\u200d\u0937",
    "Thai with a vowel behind": "\u0e19\u0e33",
    "a letter with several marks": "e\u0301\u0323",
    "a thumb of some colour": "\U0001f44d\U0001f3fd",
    "a family": "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "a flag": "\U0001f1e9\U0001f1ea",
    "a flag of letters": "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "a line break of two": "\r\n",
}
EACH = pytest.mark.parametrize("character", CHARACTERS.values(), ids=CHARACTERS)


def is_boundary(text: str, at: int) -> bool:
    """Whether a text may be cut at a place; after a line break it always may."""
    return floor_boundary("\n" + text, at + 1) == at + 1


def boundaries(characters: list[str]) -> set[int]:
    """The places between the joined characters, including the end."""
    return {len("".join(characters[:number])) for number in range(len(characters) + 1)}


@EACH
def test_no_boundary_within_a_character(character: str) -> None:
    """There is one before it and one after it, whatever the context is."""
    for other in ("a", " ", "漢", "\U0001f600", character):
        text = other + character + other
        found = {at for at in range(len(text) + 1) if is_boundary(text, at)}
        assert found == boundaries([other, character, other])


@given(st.lists(st.sampled_from([*CHARACTERS.values(), "a", "\n"]), max_size=12), st.integers(0, 60))
def test_the_nearest_boundary_is_found(characters: list[str], at: int) -> None:
    """The last one before a place, the first one after it."""
    characters = [one for one in characters if one != "\r\n"]
    text = "".join(characters)
    at = min(at, len(text))
    places = {place for place in range(len(text) + 1) if is_boundary(text, place)}
    assert places == boundaries(characters)
    assert floor_boundary(text, at) == max((place for place in places if 0 < place <= at), default=at)
    assert ceil_boundary(text, at, len(text)) == min((place for place in places if at <= place < len(text)), default=at)


def test_a_run_of_marks_is_cut_anywhere() -> None:
    """If no boundary is near enough. A line break always ends a character, and flags are paired from the first on."""
    text = "a" + "\u0301" * 1000
    assert floor_boundary(text, 500, 400) == 500
    assert ceil_boundary(text, 500, 600) == 500
    assert is_boundary("\n\u0301", 1)
    assert is_boundary("\t\u0301", 1)
    for flags in [1, 32, 33, 250]:
        text = CHARACTERS["a flag"] * flags
        assert [at for at in range(len(text)) if is_boundary(text, at)] == list(range(0, len(text), 2))


@pytest.mark.parametrize("character", [one for one in CHARACTERS.values() if one != "\r\n"])
def test_no_text_is_cut_within_a_character(character: str) -> None:
    """Tested are head and tail, the pieces of a long line, and the head of a JSON string."""
    shift = 1
    line = "x" * shift + character * 900
    whole = {"x" * shift + character * number for number in range(901)}
    pieces = split_units(line, 240).texts
    assert "".join(pieces) == line
    for number in range(1, len(pieces)):
        assert "".join(pieces[:number]) in whole
    for limit in range(60, 120, 7):
        head, _, tail = truncate_text(line, limit, count).partition("\n[trimtab: ")
        assert head in whole
        assert tail.partition("]\n")[2].replace(character, "") == ""
        assert truncate_text(line, limit, measure_bytes).partition("\n[trimtab: ")[0] in whole | {""}
    for room in range(60, 120, 7):
        assert cut_string(f'"{line}"', room)[1:].partition(" [trimtab: ")[0] in whole
