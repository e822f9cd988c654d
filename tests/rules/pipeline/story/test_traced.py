"""Changes and the places of their messages."""

from rules.conversation import Origin
from rules.pipeline.story.traced import Traced, list_elements, list_places
from rules.pipeline.story.values import OUTSIDE, Change, Fate
from rules.text.markers import INTRODUCTION


def _change(fate: Fate, after: str) -> Change:
    return Change(4, "user", "", fate, ("digest",), 3, 10, "", after)


def test_a_message_may_stand_in_several_elements_or_in_none() -> None:
    """In Responses a message has several; a system message outside the list has none."""
    assert list_elements(Origin(3, 6)) == (3, 4, 5)
    assert list_elements(Origin(3, 4, 2)) == (3,)
    assert list_elements(Origin(0, 0)) == (OUTSIDE,)
    assert list_elements(None) == ()


def test_only_what_trimtab_wrote_is_its_summary() -> None:
    """A client may quote the introduction."""
    assert Traced(_change(Fate.ADDED, INTRODUCTION)).is_summary
    assert not Traced(_change(Fate.SHORTENED, INTRODUCTION)).is_summary
    assert not Traced(_change(Fate.ADDED, "aborted")).is_summary


def test_places_are_listed_once() -> None:
    """Several results may share an element."""
    one = Traced(_change(Fate.PRUNED, ""), (7, 8))
    assert list_places([one, Traced(one.change, (2,)), one]) == (2, 7, 8)
    assert one.saved_tokens == -7
