"""Reads Markdown files with markdown-it: links, anchors, first sentences."""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

_PARSER = MarkdownIt("commonmark").enable("table")
_ID = re.compile(r"""<[a-zA-Z][^>]*\s(?:id|name)=["']([^"']+)["']""")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\[*])")


@dataclass(frozen=True, slots=True)
class Link:
    """A link in a Markdown file.

    line: the first line of the paragraph that contains the link, from 1.
    target: as written.
    """

    line: int
    target: str

    def resolve(self, source: str) -> tuple[str, str] | None:
        """The path of the target, resolved against the path of `source`, and its fragment. None for another host."""
        parts = urlsplit(self.target)
        if parts.scheme or parts.netloc:
            return None
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), unquote(parts.path)))
        return (path if parts.path else source), parts.fragment


def parse(text: str) -> list[Token]:
    """Parse a Markdown text into its blocks."""
    return _PARSER.parse(text)


def find_links(text: str) -> Iterator[Link]:
    """Find the links and pictures of a Markdown text, except those in HTML tags."""
    for token in parse(text):
        line = token.map[0] + 1 if token.map else 0
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src")
            if child.type in {"link_open", "image"} and target is not None:
                yield Link(line, str(target))


def find_anchors(text: str) -> set[str]:
    """Collect the fragments that links may use: those that GitHub derives from headings, and those of HTML tags."""
    anchors: set[str] = set(_ID.findall(text))
    tokens = parse(text)
    for heading, content in pairwise(tokens):
        if heading.type == "heading_open":
            slug = base = slug_of(plain(content))
            number = 0
            while slug in anchors:
                number += 1
                slug = f"{base}-{number}"
            anchors.add(slug)
    return anchors


def slug_of(heading: str) -> str:
    """The fragment that GitHub derives from a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def plain(inline: Token) -> str:
    """The text of an inline token without its markup."""
    parts = (" " if child.type in {"softbreak", "hardbreak"} else child.content for child in inline.children or ())
    return "".join(parts)


def read_title(text: str) -> str:
    """The first heading; empty if there is none."""
    tokens = parse(text)
    return next((plain(after) for token, after in pairwise(tokens) if token.tag == "h1"), "")


def read_summary(text: str) -> str:
    """The first sentence of the first paragraph; empty if there is none."""
    tokens = parse(text)
    inside = (after for token, after in pairwise(tokens) if token.type == "paragraph_open")
    return next((_SENTENCE_END.split(said, maxsplit=1)[0] for token in inside if (said := plain(token).strip())), "")


def read(path: Path) -> str:
    """The text of a file."""
    return path.read_text("utf-8")
