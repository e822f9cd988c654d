"""Who writes the summaries, where no model is at hand.

Law: the same prompt and number make the same note. `none` writes nothing: each cut gets the digest.
"""

import re
from collections.abc import Callable

from bench.peers.note import write_note

NOTE_TOKENS = 700
"""Of a note made of the prompt's words: as in bench/sessions."""
SAYS_NOTHING = (
    "The work was carried on in the way that it was asked for. Each step followed from the one before it, and nothing"
    " happened that nobody had expected. What had been agreed holds as before."
)
_HEADING = re.compile(r"(?m)^(?:#{1,4} *|\d+\. *)[A-Z0-9][^\n:*#]{3,60}$")
_PARTS = 4
"""So many headings a handoff note is asked for with; they stand at the end of the prompt."""

Summarise = Callable[[str, int, int], str]
"""A note by the prompt, its number in the session, and the tokens that it may have."""


def write_nothing_useful(prompt: str, number: int, _: int) -> str:
    """A note under the headings that the prompt asks for, with nothing of use in it."""
    headings = _HEADING.findall(prompt)[-_PARTS:] or ["## Summary"]
    return "\n".join((f"Note {number}", *(f"{heading}\n{SAYS_NOTHING}" for heading in headings)))


def write_words(prompt: str, _: int, max_tokens: int) -> str:
    """A note of the prompt's own words, taken at even distances."""
    return write_note(prompt, min(NOTE_TOKENS, max_tokens))


SUMMARISERS: dict[str, Summarise | None] = {
    "none": None,
    "canned": write_nothing_useful,
    "words": write_words,
}
