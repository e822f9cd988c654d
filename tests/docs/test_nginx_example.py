"""The nginx configuration in the guide is the one that the tests of replicas use."""

import re
from pathlib import Path

from programs.replica_group import NGINX

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "several-processes.md"
OWN = ("listen", "add_header")
"""Directives only of the test: a loopback port, and a header that names the replica that answered."""


def _directives(text: str) -> list[str]:
    """The directives of the server block, in order, without comments. `{{` in the test's template means `{`."""
    server = text[text.index("server {") :].replace("{{", "{")
    return [line.strip() for line in re.sub(r"#.*", "", server).splitlines() if line.strip().endswith(";")]


def test_the_guide_sets_what_is_tested() -> None:
    """The guide has each directive of the tested server block, with the same value."""
    (example,) = re.findall(r"^```nginx\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    tested = [line for line in _directives(NGINX) if not line.startswith(OWN)]
    shown = _directives(example)
    assert tested
    assert [line for line in tested if line not in shown] == []
