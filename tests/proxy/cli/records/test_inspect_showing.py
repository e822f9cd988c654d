"""What is printed cannot control a terminal, and says what is known."""

from dataclasses import replace
from io import StringIO

import pytest
from msgspec import structs
from rich.console import Console
from support.recordings import make_recording

from trimtab.proxy.account.recordings.format import RecordedSummary
from trimtab.proxy.cli.records.inspect import Changed, safe, show, show_list
from trimtab.proxy.telemetry.ledger import Entry
from trimtab.rules.pipeline.changes import Change, Fate
from trimtab.rules.summary.request import OPAQUE

EVIL = "\x1b]0;title\x07\x1b[2Jred \x9b31m \u202e [bold]x[/bold]"
REMOVED = [Change(at, "tool", "bash", Fate.REMOVED, ("digest",), 100, 0, "before") for at in range(2, 9)]


def print_it(recording, changed=Changed(), *, with_diff=False) -> str:  # noqa: B008 - a constant
    console = Console(file=StringIO(), width=140, highlight=False)
    show(recording, changed, console, with_diff=with_diff)
    return console.file.getvalue()


def test_no_text_controls_the_terminal():
    recording = make_recording()
    event = structs.replace(
        recording.event,
        request_id=EVIL,
        session=EVIL,
        method=EVIL,
        client=EVIL,
        outcome=EVIL,
        model=EVIL,
        error="x",
        reason=EVIL,
        original_tokens=9,
        original_sections=(1, 2, 3, 1, 2),
        sent_sections=(1, 2, 3, 1, 2),
        decisions=(Entry(EVIL, EVIL, 9, 3, 1, 1, 1, 9),),
    )
    summary = RecordedSummary("id", "digest", by_model=False, text=EVIL)
    told = replace(recording, event=event, summary=summary, story=(EVIL,))
    change = Change(1, EVIL, EVIL, Fate.PRUNED, ("prune",), 10, 3, f"{EVIL}\nsame\r\n", EVIL)
    shown = print_it(told, Changed((change,), EVIL), with_diff=True)
    assert not [char for char in shown if not char.isprintable() and char != "\n"]
    assert "[bold]x[/bold]" in shown
    console = Console(file=StringIO(), width=200)
    shorter = structs.replace(event, request_id="\x1b[2Jxx[b]", session="\x9b2Jxx[b]")
    show_list([event, shorter], console)
    listed = console.file.getvalue()
    assert not [char for char in listed if not char.isprintable() and char != "\n"]
    assert "\\x1b[2Jxx[b]" in listed
    assert "\\x9b2Jxx[b]" in listed


def test_removed_messages_share_a_line_unless_each_is_shown():
    changed = Changed((*REMOVED, Change(9, "tool", "bash", Fate.PRUNED, ("prune",), 50, 7, "old", "new")))
    shown = print_it(make_recording(), changed)
    assert "2 to 8: 7 messages removed by digest (results of bash: 7), 700 -> 0 tokens" in shown
    assert "9: tool of bash pruned by prune, 50 -> 7 tokens" in shown
    each = print_it(make_recording(), changed, with_diff=True)
    assert "3: tool of bash removed by digest, 100 -> 0 tokens" in each
    assert "-old" in each
    assert "+new" in each


def test_only_removed_messages_share_a_line():
    """A summary may be two messages, which are added at the same place."""
    added = [Change(61, role, "", Fate.ADDED, ("summarise",), 0, 9, "", "text") for role in ("user", "assistant")]
    shown = print_it(make_recording(), Changed(tuple(added)))
    assert "61: user added by summarise, 0 -> 9 tokens" in shown
    assert "61: assistant added by summarise, 0 -> 9 tokens" in shown


def test_a_doubt_is_told():
    assert "note: not sure" in print_it(make_recording(), Changed(doubt="not sure"))


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        ({"prompt_tokens": 4321}, "the upstream counts 4,321 prompt tokens\n"),
        ({"prompt_tokens": 4321, "cached_tokens": 4000}, "4,000 of them from its cache"),
        ({"completion_tokens": 7, "is_estimated": True}, "completion: 7 tokens, estimated"),
        ({"prefix_kept": 0.954}, "95.4%"),
        ({"cost": 12_300_000, "without_cost": 50_000_000}, "cost $0.0123; without trimtab $0.0500"),
        ({"retry": "recovered"}, "the second: recovered"),
        ({"client": "alice"}, "client alice"),
    ],
)
def test_each_figure_is_shown_if_it_is_known(figures, told):
    recording = make_recording()
    assert told in print_it(replace(recording, event=structs.replace(recording.event, **figures)))
    assert told not in print_it(recording)


def test_of_a_note_that_only_its_provider_can_read_that_is_said() -> None:
    summary = RecordedSummary("5" * 64, "summarise", by_model=True, text="", note="{}")
    shown = print_it(replace(make_recording(), summary=summary))
    assert f"Summary (written by the provider's own compaction, id {'5' * 64})\n{OPAQUE}\n" in shown


def test_lines_of_a_text_stay_lines():
    assert safe("a\n\tb\r", lines=True).plain == "a\n    b\\r"
