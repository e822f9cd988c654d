"""The pages of the site, in the order of the navigation in mkdocs.yml."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its section in the navigation, and the path of its Markdown file inside the pages' folder."""

    section: str
    path: str


def read_pages(config: Path) -> list[Page]:
    """The pages in the navigation of a mkdocs.yml, in order."""
    sections = yaml.safe_load(config.read_text("utf-8"))["nav"]
    return [Page(title, path) for section in sections for title, entry in section.items() for path in _list(entry)]


def _list(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
        return
    for child in entry:
        yield from _list(child if isinstance(child, str) else list(child.values()))


def check_navigation(pages: list[Page], folder: Path) -> Iterator[str]:
    """Find Markdown files that the navigation does not list, and entries without a file or listed twice."""
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}
    named = [page.path for page in pages]
    for path in sorted(files - set(named)):
        yield f"{path}: the navigation does not name this page; add it to scripts/site/mkdocs.yml"
    for path in sorted(set(named) - files):
        yield f"{path}: the navigation names this page, but the file does not exist"
    for path in sorted({path for path in named if named.count(path) > 1}):
        yield f"{path}: the navigation names this page twice"
