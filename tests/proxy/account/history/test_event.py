"""An event is plain data."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from proxy.account.history.event import Event, EventCut, EventText, EventWindow
from proxy.telemetry.ledger import Entry

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TOKENS = st.integers(0, 2**53)
EVENTS = st.builds(
    Event,
    at=NUMBERS,
    seconds=NUMBERS,
    status=TOKENS,
    prefix_kept=st.none() | NUMBERS,
    cost=st.none() | TOKENS,
    decisions=st.lists(
        st.builds(Entry, *[st.text(), st.text(), *[TOKENS] * 6]),
        max_size=3,
    ).map(tuple),
    window=st.none() | st.just(EventWindow(9, 3, 2, (EventCut("digest", 4, 6),))),
)


@given(event=EVENTS)
def test_an_event_is_the_same_after_it_was_written_as_json(event):
    assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event


def test_the_text_of_a_conversation_is_not_shown_by_accident():
    """Tracebacks and logs show the `repr` of values."""
    assert "secret" not in repr(EventText(("told",), (), "secret"))
