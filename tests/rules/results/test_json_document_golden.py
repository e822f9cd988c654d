"""Excerpts of JSON, as they are: the weights together."""

import json  # noqa: TID251 - documents as others write them, with blanks
from typing import Any

import pytest
from support.builders import count
from support.golden import check_golden

from trimtab.rules.results.json_document import excerpt_json

STATES, ZONES = ("ready", "ready", "busy", "ready", "idle"), ("north", "south", "east")


def _make_service(number: int) -> dict[str, Any]:
    service: dict[str, Any] = {
        "id": 4000 + number,
        "name": f"service {number * 7 % 90}",
        "kind": "Service",
        "state": STATES[number % 5],
        "started": 1_700_000_000 + 60 * number,
        "load": [number * 37 % 50 + 1, number % 3],
        "place": {"zone": ZONES[number % 3], "rack": f"r{number % 11}", "spare": None, "unit": {"deep": number % 4}},
        "ports": [8000 + number, 9000 + number, 80, 443, 22, 25, 53][: number % 7],
        "note": f"it was checked by the night shift {number % 13} times and nothing was found",
    }
    return service


def _make_services(number: int) -> list[dict[str, Any]]:
    services = [_make_service(each) for each in range(number)]
    services[41]["state"] = "failed"
    services[17]["load"] = [9000, 1]
    services[58]["error"] = {"code": 137, "message": "the process was killed because it took too much memory"}
    services[33]["started"] = 1_700_000_000
    services[73]["place"]["zone"] = "west"
    return services


HISTORY = [
    {
        "at": number,
        "total": number * number,
        "change": round((number * 29 % 17) / 7, 3),
        "by": "anna" if number % 9 else "ben",
    }
    for number in range(60)
]
TREE = {
    "name": "harbour",
    "version": "2.4.1",
    "scripts": {name: f"run {name} --with {number} workers" for number, name in enumerate(("build", "test", "lint"))},
    "readme": "\n".join(
        f"Line {number} of the text: {'error: it failed' if number == 20 else 'all is well'}" for number in range(60)
    ),
    "keywords": [f"word{number}" for number in range(80)],
    "numbers": [number * 13 % 101 for number in range(200)],
    "dependencies": {f"package-{number}": f"^{number % 5}.{number % 7}.0" for number in range(50)},
    "nested": {"a": {"b": {"c": {"d": [[1, 2, [3, 4]], {"e": "f" * 300}]}}}},
    "long": "one long sentence without an end " * 30,
    "digits": int("1" * 90),
    "empty": {"list": [], "object": {}, "text": "", "none": None, "yes": True},
}
DOCUMENTS = {
    "services": json.dumps(_make_services(90)),
    "services-indented": json.dumps({"items": _make_services(40 + 40), "next": None, "total": 80}, indent=2),
    "few-records": json.dumps(_make_services(80)[55:60]),
    "history": json.dumps(HISTORY),
    "history-by-name": json.dumps({f"{row['by']} {row['at']}": row for row in HISTORY}, separators=(",", ":")),
    "tree": json.dumps(TREE),
    "tree-indented": json.dumps(TREE, indent=4),
    "table": json.dumps([[number, f"row {number}", number % 4 == 3, [number, number + 1]] for number in range(70)]),
    "texts": json.dumps([f"item {number}: {'x' * (number * 17 % 60)}" for number in range(120)]),
    "escapes": json.dumps({"text": 'a "quoted" word, a \\ and é漢\U0001f600 ' * 40, "more": ["\n\t" * 50] * 3}),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_an_excerpt_of_json_is_as_it_was(name: str) -> None:
    """Of records, of members and of items, with little room and with more."""
    text = DOCUMENTS[name]
    rooms = {f"{tokens} tokens": tokens for tokens in (90, 250, 700)}
    check_golden(
        f"excerpts/json-{name}", {title: str(excerpt_json(text, tokens, count)) for title, tokens in rooms.items()}
    )
