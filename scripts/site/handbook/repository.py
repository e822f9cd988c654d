"""Checks the links of Markdown files that readers open in the repository: README, CHANGELOG, those of the bench."""

from collections.abc import Iterator
from pathlib import Path

from handbook.markdown import find_anchors, find_links, read

FILES = ("README.md", "CHANGELOG.md", "bench/README.md", "bench/SCALE.md")


def find_broken(root: Path, files: tuple[str, ...] = FILES) -> Iterator[str]:
    """Find each link of these files to a file, or to an anchor of a Markdown file, that does not exist."""
    for name in files:
        for link in find_links(read(root / name)):
            resolved = link.resolve(name)
            if resolved is None:
                continue
            path, fragment = resolved
            if not (root / path).exists():
                yield f"{name}:{link.line}: {link.target} does not exist"
            elif fragment and path.endswith(".md") and fragment not in find_anchors(read(root / path)):
                yield f"{name}:{link.line}: {link.target} names an anchor that does not exist"
