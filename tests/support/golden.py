"""Texts as they were when somebody last looked at them: `tests/data/golden`.

A text that the program writes into requests must not change by accident: sessions under way would lose their cache. If
a change is meant, write the files anew and read the difference: `WRITE_GOLDEN=1 .venv/bin/pytest -n0 FILE`.
"""

import os
from collections.abc import Mapping
from difflib import unified_diff
from typing import Any

import yaml
from support.sessions import OWN_DATA

FOLDER = OWN_DATA / "golden"


def check_golden(name: str, texts: Mapping[str, str]) -> None:
    """The titles and texts are those of the file."""
    file = FOLDER / f"{name}.txt"
    written = "".join(f"==== {title}\n{text}\n" for title, text in texts.items())
    if "WRITE_GOLDEN" in os.environ:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(written, "utf-8")
    differing = list(unified_diff(file.read_text("utf-8").split("\n"), written.split("\n"), "kept", "now", n=1))
    assert not differing, "\n".join(differing)


def read_tables(name: str) -> list[Any]:
    """Laws of `tests/data/tables`: each has a function's name, and cases, what it is given and what it answers."""
    laws: list[Any] = yaml.safe_load((OWN_DATA / "tables" / f"{name}.yaml").read_text("utf-8"))
    return laws
