"""Writes llms.txt: an index of the pages in plain Markdown, for language models (https://llmstxt.org)."""

from collections.abc import Mapping
from itertools import groupby

from handbook.markdown import read_summary, read_title
from handbook.navigation import Page


def write_index(name: str, summary: str, pages: list[Page], texts: Mapping[str, str]) -> str:
    """Return the text of llms.txt: sections as in the navigation, and for each page a relative link and a sentence."""
    lines = [f"# {name}", "", f"> {summary}"]
    for section, group in groupby(pages, key=lambda page: page.section):
        lines += ["", f"## {section}", ""]
        for page in group:
            text = texts[page.path]
            lines.append(f"- [{read_title(text)}]({page.path}): {read_summary(text)}")
    return "\n".join(lines) + "\n"


def find_unfit(pages: list[Page], texts: Mapping[str, str]) -> list[str]:
    """Find each page without a title or without a first sentence."""
    return [
        f"{page.path}: a page needs a title and a first sentence"
        for page in pages
        if not (read_title(texts[page.path]) and read_summary(texts[page.path]))
    ]
