"""The classes of identifiers, and the sums of the measure."""

import pytest

from bench.retention.needed.tally import classify
from trimtab.proxy.cli.records.run import find_identifiers


@pytest.mark.parametrize(
    ("identifier", "kind"),
    [
        ("src/app/main.py", "path"),
        ("/etc/hosts", "path"),
        ("https://a.example/b?c=1", "url"),
        ("jane.doe@corp.example", "address"),
        ("48213", "number"),
        ("2031-04-05", "number"),
        ("a1b2-c3d4e", "id"),
        ("7204b2221a58", "id"),
        ("settings.DEBUG", "name"),
        ("max_tool_tokens", "name"),
        ("readFile", "name"),
    ],
)
def test_an_identifier_is_found_whole_and_has_one_class(identifier: str, kind: str) -> None:
    assert find_identifiers(f"see {identifier}, please") == {identifier}
    assert classify(identifier) == kind
