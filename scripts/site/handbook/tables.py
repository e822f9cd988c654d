"""Writes Markdown tables and plain text."""

from collections.abc import Iterable, Sequence


def write_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a final line break. In a cell, `|` is escaped and a line break becomes a space."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(map(_write_cell, line))} |\n" for line in lines)


def _write_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """A text as inline code; empty for an empty text."""
    return f"`{text}`" if text else ""


def plain(text: str) -> str:
    """A text with its special characters escaped, so that Markdown shows it literally; inline code stays code."""
    parts = text.split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("*", r"\*") for part in parts[::2]]
    return "`".join(parts)
