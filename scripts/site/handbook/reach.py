"""Counts the clicks from the front page to each page, by the links in the text of pages, without the navigation."""

from collections.abc import Iterator, Mapping

from handbook.markdown import find_links
from handbook.navigation import Page

MAX_CLICKS = 2


def find_distant(pages: list[Page], texts: Mapping[str, str]) -> Iterator[str]:
    """Find each page that is more than two clicks away from index.md."""
    near = {"index.md"}
    for _ in range(MAX_CLICKS):
        near |= {path for page in near for path in _follow(page, texts)}
    for page in pages:
        if page.path not in near:
            yield f"{page.path}: {MAX_CLICKS} clicks from index.md do not reach this page; link to it from a near one"


def _follow(page: str, texts: Mapping[str, str]) -> Iterator[str]:
    for link in find_links(texts.get(page, "")):
        resolved = link.resolve(page)
        if resolved is not None and resolved[0] in texts:
            yield resolved[0]
