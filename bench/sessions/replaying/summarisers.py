"""Functions that write summaries in place of a model.

Law: the same prompt and number make the same note. `none` writes nothing: each cut gets the digest. The answer of
`rejected` is not a note: each cut gets the digest, after calls that cost money.
"""

import re
from collections.abc import Callable

from bench.peers.note import write_note

NOTE_TOKENS = 700
"""Tokens of a note that is made of the prompt's words, as in bench/sessions."""
SAYS_NOTHING = (
    "The work was carried on in the way that it was asked for, one step after the other.",
    "The wishes that were made known at the beginning were kept in mind all along and hold as before.",
    "The steps that the plan has for the rest of the work follow one after the other as they were agreed on.",
    "All the figures and names that came up on the way were looked at with care and put to their use.",
)
"""One sentence for each heading. A note with the same sentence under all headings is not accepted
(rules/summary/handoff.py); the digest would replace it."""
_HEADING = re.compile(r"(?m)^(?:#{1,4} *|\d+\. *)[A-Z0-9][^\n:*#]{3,60}$")

Summarise = Callable[[str, int, int], str]
"""Makes a note from the prompt, its number in the session, and the tokens that it may have."""


def write_nothing_useful(prompt: str, number: int, _: int) -> str:
    """A note under the headings that the prompt asks for, without useful content.

    The headings are at the end of the prompt; there are as many as sentences.
    """
    headings = _HEADING.findall(prompt)[-len(SAYS_NOTHING) :] or ["## Summary"]
    parts = zip(headings, SAYS_NOTHING, strict=False)
    return "\n".join((f"Note {number}", *(f"{heading}\n{sentence}" for heading, sentence in parts)))


def write_no_note(_: str, number: int, __: int) -> str:
    """An answer without the headings. It is paid for and not accepted, so the cut gets the digest."""
    return f"Note {number}\nSummary: {SAYS_NOTHING[0]}"


def write_words(prompt: str, _: int, max_tokens: int) -> str:
    """A note of the prompt's own words, at even distances."""
    return write_note(prompt, min(NOTE_TOKENS, max_tokens))


SUMMARISERS: dict[str, Summarise | None] = {
    "none": None,
    "canned": write_nothing_useful,
    "words": write_words,
    "rejected": write_no_note,
}
