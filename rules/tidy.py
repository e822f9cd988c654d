"""Rung 1, on a text: what a tool result loses without a loss.

Law: the same object where there is nothing to do.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tidying:
    """What is tidied."""

    ansi: bool = True
    progress: bool = True
    line_ends: bool = True
    blanks: bool = True
    repeats: bool = True
    json: bool = True
    tables: bool = True
    base64: bool = True


def tidy_text(text: str, tidying: Tidying, *, is_file: bool, fits: Callable[[str], bool]) -> str:
    """The text without what says nothing."""
    del tidying, is_file, fits
    return text
