"""What clients write into texts: their own summaries of a session, requests for one, and retrieved memory.

Law: data, and functions of one text in linear time. A text counts only if it begins with a client's words, so a user
who writes "summarise the conversation so far" asks an ordinary question. The words are in words.txt.

Crush's summary, and Roo Code's before 2026, are texts of the model without any introduction, so they are not
recognised.

A block of memory begins with `<TAG>` or `<TAG attributes>` and ends at the first closing tag of its own name. A tag
that is never closed begins no block. Upper and lower case differ.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from trimtab.rules.text.late import compile_late, read_table


def _read_rows(section: str) -> tuple[str, ...]:
    return tuple(re.findall(r"^ {4}(?!# )(.+)", read_table(__name__)[section], re.MULTILINE))


INTRODUCTIONS = tuple(row.replace("\\n", "\n") for row in _read_rows("introductions"))
TEMPLATES = tuple(tuple(row.replace("\\n", "\n").split("|")) for row in _read_rows("templates"))
"""Headings of a summary, in order. With opencode, the summary is the model's answer to "What did we do so far?"; with
Goose, it is a user message."""
_DRAFTS = ("<scratchpad>", "<analysis>")
"""Tags of what the model thought before its summary. Gemini CLI keeps this; source: as for `<state_snapshot>`."""

BEGINNINGS = (*INTRODUCTIONS, *_DRAFTS, *(headings[0] for headings in TEMPLATES))
BEGINS_AS_SUMMARY = compile_late(r"\s*+(?:" + "|".join(map(re.escape, BEGINNINGS)) + ")")


def is_client_summary(text: str) -> bool:
    """Whether a text is the summary of an earlier session that a client inserted."""
    text = text.lstrip()
    if not text.startswith(BEGINNINGS):  # by far the most texts
        return False
    if text.startswith(INTRODUCTIONS):
        return True
    if text.startswith(_DRAFTS):
        return "<state_snapshot>" in text
    return any(text.startswith(headings[0]) and _has_in_order(text, headings) for headings in TEMPLATES)


def _has_in_order(text: str, headings: tuple[str, ...]) -> bool:
    """Whether all headings occur, each after the one before."""
    at = 0
    for heading in headings:
        at = text.find(heading, at)
        if at < 0:
            return False
        at += len(heading) - 1  # its line break may begin the next heading
    return True


IN_USER, IN_SYSTEM, AFTER_CONVERSATION = map(_read_rows, ("in user", "in system", "after conversation"))
TRIGGER = "compaction_trigger"
"""The item with which a client asks the server for a compaction of what is before it. Source: openai/codex#22809."""


def _join(patterns: tuple[str, ...], start: str) -> re.Pattern[str]:
    return compile_late(start + "(?:" + "|".join(f"(?:{pattern})" for pattern in patterns) + ")")


_BEGINS_IN_USER, _BEGINS_IN_SYSTEM = _join(IN_USER, r"\s*+"), _join(IN_SYSTEM, r"\s*+")
_FOLLOWS = _join(AFTER_CONVERSATION, r"\n")
_CONVERSATION = compile_late(r"\s*+(?:Here is the conversation so far:\s*+)?<conversation>")
_END = "</conversation>"


def asks_for_summary(text: str) -> bool:
    """Whether a text of a user message begins as a client's request for a summary.

    If the client wrote the conversation before its request, the words after the conversation decide.
    """
    if _CONVERSATION.match(text):
        end = text.rfind(_END)
        return end >= 0 and _FOLLOWS.search(text, end) is not None
    return _BEGINS_IN_USER.match(text) is not None


def instructs_to_summarise(text: str) -> bool:
    """Whether a text of a system prompt begins as a client's instructions for writing a summary."""
    return _BEGINS_IN_SYSTEM.match(text) is not None


def find_memory(text: str, tags: Sequence[str]) -> list[tuple[int, int]]:
    """The spans (start, stop) of all blocks with one of these tags, oldest first; blocks within blocks do not count."""
    # Most texts have no block, and this test is far quicker than the pattern below.
    if not any(f"</{tag}>" in text for tag in tags):
        return []
    pattern = _find_pattern(tuple(tags))
    spans: list[tuple[int, int]] = []
    unclosed: set[str] = set()
    stop = 0
    while opening := pattern.search(text, stop):
        tag, stop = opening.group(1), opening.end()
        if tag in unclosed:
            continue
        closing = f"</{tag}>"
        end = text.find(closing, stop)
        if end < 0:
            unclosed.add(tag)  # no later tag of this name is closed either: the text is not searched again
            continue
        stop = end + len(closing)
        spans.append((opening.start(), stop))
    return spans


@lru_cache(maxsize=256)
def _find_pattern(tags: tuple[str, ...]) -> re.Pattern[str]:
    """What begins a block. A longer name is another tag."""
    return re.compile(rf"<({'|'.join(map(re.escape, tags))})(?=[>\s])")
