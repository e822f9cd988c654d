"""Writes the reference pages that come from the code: configuration, commands, metrics and markers.

Also writes the Grafana dashboard and the alert rules.

Usage: python scripts/site/generate.py [FOLDER]   (the folder with the pages; docs/ if none is given)
"""

import sys
from pathlib import Path

from handbook.reference import PAGES, write_page
from monitoring.files import FOLDER, write_files

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Write every generated page."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    for path in PAGES:
        page = folder / path
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(write_page(path), "utf-8")
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    for name, text in write_files().items():
        (folder / FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
