"""The classes of identifiers, and the sums of the measure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.retention.needed.tally import CLASSES, Known, Named, Tally, classify
from trimtab.proxy.cli.records.run import find_identifiers


def _message(text: str, *ids: str) -> Named:
    return Named(text, find_identifiers(text), frozenset(ids))


def test_what_is_removed_may_be_recalled_by_the_text_instead() -> None:
    """Kept is what is forwarded in some form; removed is what no forwarded message of the client holds."""
    known, talk = (
        Known(),
        [_message("src/app.py and 48213"), _message("src/lib.py", "a"), _message("7204b2221a58", "a")],
    )
    for message in talk:
        known.add(message)
    answer = _message("src/app.py, src/lib.py, 48213, 7204b2221a58 and src/new.py")
    for forwarded, sums in ((talk[:2], (4, 3, 1, 0)), ([_message("Summary: 7204b2221a58")], (4, 1, 4, 1))):
        tally = known.measure(answer, forwarded)
        assert (tally.needed.total(), tally.kept.total(), tally.removed.total(), tally.recalled.total()) == sums


@pytest.mark.parametrize(
    ("identifier", "kind"),
    [
        ("src/app/main.py", "path"),
        ("/etc/hosts", "path"),
        ("https://a.example/b?c=1", "url"),
        ("jane.doe@corp.example", "address"),
        ("48213", "number"),
        ("2031-04-05", "number"),
        ("a1b2-c3d4e", "id"),
        ("7204b2221a58", "id"),
        ("settings.DEBUG", "name"),
        ("max_tool_tokens", "name"),
        ("readFile", "name"),
    ],
)
def test_an_identifier_is_found_whole_and_has_one_class(identifier: str, kind: str) -> None:
    assert find_identifiers(f"see {identifier}, please") == {identifier}
    assert classify(identifier) == kind


@given(st.text(max_size=80))
def test_every_identifier_has_a_known_class_and_a_length_within_bounds(text: str) -> None:
    for found in find_identifiers(text):
        assert classify(found) in CLASSES
        assert 5 <= len(found) <= 200


def test_shares_of_nothing_are_not_known() -> None:
    assert Tally().share_kept() is None
    assert Tally().share_recalled("path") is None
