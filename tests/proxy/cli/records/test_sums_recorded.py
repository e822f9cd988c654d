"""What the metrics counted of a recording."""

from dataclasses import replace

from msgspec import structs
from support.recordings import make_recording

from trimtab.proxy.account.recordings.format import Counted
from trimtab.proxy.cli.records.sums import RequestFigures
from trimtab.rules.conversation import Decision

DECISION = Decision("tidy", "", 9, 5, 1, 0)


def test_only_what_was_counted_is_told() -> None:
    """A request may have a prompt that the metrics did not count, and decisions that were not sent."""
    recording = make_recording()
    event = structs.replace(
        recording.event, original_sections=(1, 2, 3, 4, 5), sent_sections=(1, 0, 0, 0, 0), label="m"
    )
    sent = RequestFigures.of(replace(recording, event=event, counted=Counted(True, True, (DECISION,))))  # noqa: FBT003
    uncounted = RequestFigures.of(replace(recording, event=event))

    assert (sent.original_tokens, sent.sent_tokens, sent.counted.decisions, sent.event.label) == (
        15,
        1,
        (DECISION,),
        "m",
    )
    assert (uncounted.original_tokens, uncounted.sent_tokens) == (0, 0)


def test_it_says_who_counted_the_completion() -> None:
    event = structs.replace(make_recording().event, is_estimated=True, completion_tokens=3)
    assert RequestFigures.of(replace(make_recording(), event=event)).completion_source == "estimated"
    assert RequestFigures.of(make_recording()).completion_source == "upstream"
