"""The nginx configuration that operators copy is the one that the tests of replicas run with."""

import re
from pathlib import Path

from programs.replica_group import NGINX

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "several-processes.md"
OWN = ("listen", "add_header")
"""Of the test alone: a port of loopback, and a header that says which replica answered."""


def _directives(text: str) -> list[str]:
    """What the server block sets, in order, without comments; `{{` as the test writes it is `{`."""
    server = text[text.index("server {") :].replace("{{", "{")
    return [line.strip() for line in re.sub(r"#.*", "", server).splitlines() if line.strip().endswith(";")]


def test_the_guide_sets_what_is_tested() -> None:
    """Each directive of its server block, with the same value."""
    (example,) = re.findall(r"^```nginx\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    tested = [line for line in _directives(NGINX) if not line.startswith(OWN)]
    shown = _directives(example)
    assert tested
    assert [line for line in tested if line not in shown] == []
