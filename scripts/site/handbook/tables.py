"""Markdown tables and plain text, written."""

from collections.abc import Iterable, Sequence


def write_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, with a line break at its end. A `|` of a cell is escaped; a line break becomes a blank."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(map(_write_cell, line))} |\n" for line in lines)


def _write_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """A text as code, in the middle of a sentence; empty for an empty text."""
    return f"`{text}`" if text else ""


def plain(text: str) -> str:
    """A text that has no Markdown in it but code, so that Markdown shows all its characters."""
    parts = text.split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("*", r"\*") for part in parts[::2]]
    return "`".join(parts)
