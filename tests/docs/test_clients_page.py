"""The page on clients that compact by themselves has the forms that the rules recognise."""

from support.client_words import AFTER_CONVERSATION, IN_SYSTEM, IN_USER
from support.reference_pages import ROOT, read_rows

from trimtab.rules.text.client_summaries import INTRODUCTIONS, TEMPLATES

PAGE = (ROOT / "docs" / "explanation" / "clients-that-compact.md").read_text("utf-8")
SHOWN_WORDS = 9
"""The table shows so many words of each sample."""


def test_each_request_has_a_row() -> None:
    """The row says where the words are, and what their source is; the table has no other rows."""
    places = {
        "last user message": IN_USER,
        "last user message, after a conversation": AFTER_CONVERSATION,
        "system prompt": IN_SYSTEM,
    }
    heading = "| client | where |"
    rows = read_rows(heading + PAGE.split(heading)[1].split("\n\n")[0])
    expected = [
        [form.client, place, f"`{' '.join(form.sample.split()[:SHOWN_WORDS])}`", form.source]
        for place, forms in places.items()
        for form in forms
    ]
    assert sorted(rows) == sorted(expected)


def test_each_summary_has_a_row() -> None:
    """Templates of headings are named by their client."""
    shown = PAGE.split("### Their summaries")[1]
    others = ("The following is a summary of a branch that this conversation came back from:",)
    assert all(f"`{words.strip()}" in shown for words in INTRODUCTIONS if words not in others)
    assert all(f"`{part.strip()}`" in shown for part in TEMPLATES[-1])
