"""The repository that the demo's agent works in: the invented booking service of a ferry line.

Law: deterministic, and in memory. The agent's tools really do what they say. Only `run_tests` runs nothing: a test
passes if its file and the tested module use the same type for amounts.
"""

import re

PACKAGES = {
    "fares": ("pricing", "discounts", "surcharges", "season", "currency", "bundles"),
    "bookings": ("cart", "hold", "confirm", "cancel", "refund", "voucher"),
    "billing": ("invoice", "ledger", "payout", "tax", "reconcile", "export"),
    "desk": ("quotes", "orders", "webhooks", "reports", "kiosk", "agents"),
}
SEARCH_HITS = 40
"""Chosen. The description of the tool `search` names the same number."""

_VERBS = ("compute", "apply", "split", "check", "merge", "settle", "quote", "reverse", "carry", "cap", "share", "post")
_NOUNS = ("fare", "deposit", "fee", "balance", "surcharge", "credit", "rebate", "toll", "total", "refund", "levy")
_PARTIES = ("passenger", "vehicle", "group", "harbour", "agent", "cabin", "pet", "bicycle", "crew", "freight", "child")
_FUNCTION = """

def {name}({party}: Party, {noun}: float, sailing: Sailing, ledger: Ledger) -> float:
    entry = ledger.find({party}.id, kind="{noun}")  # harbour {number} books it a day late
    due: float = quantize({noun} * RATES[{party}.kind, sailing.season]) - (entry.amount if entry else ZERO)
    if due < ZERO:
        raise FareError(f"{noun} of {party} {{{party}.id}} is negative: {{{noun}}}")
    ledger.append(Entry({party}.id, "{noun}", due, reason="{name}", harbour={number}))
    return due
"""
_TEST = """

def test_{name}(sailing, ledger) -> None:
    {party} = make_party("{party}", id={number})
    amount = {name}({party}, {number}.25, sailing, ledger)
    assert amount == {number}.25
"""


class Project:
    """The repository and the agent's tools: each public method is a tool, and its docstring the tool's description.

    files: text by path.
    """

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        modules = [(package, name) for package, names in PACKAGES.items() for name in names]
        for place, (package, module) in enumerate(modules):
            words = [_choose_words(place, number) for number in range(5 + place * 7 % 9)]
            names = ", ".join(str(each["name"]) for each in words)
            for path, head, template in (
                (f"ferry/{package}/{module}.py", f"from ferry.{package}.tables import RATES", _FUNCTION),
                (f"tests/{package}/test_{module}.py", f"from ferry.{package}.{module} import {names}", _TEST),
            ):
                self.files[path] = head + "".join(template.format(**each) for each in words)

    def list_files(self, path: str) -> str:
        """List the files of a directory, with their sizes."""
        return "\n".join(f"{len(text):>6}  {name}" for name, text in self.files.items() if name.startswith(path))

    def read_file(self, path: str) -> str:
        """Show a file, its lines numbered."""
        return "\n".join(f"{number:>5}  {line}" for number, line in enumerate(self.files[path].splitlines(), start=1))

    def search(self, pattern: str, path: str) -> str:
        """Find lines by a regular expression; at most 40 are shown."""
        found = [
            f"{name}:{number}: {line.strip()}"
            for name, text in self.files.items()
            for number, line in enumerate(text.splitlines(), start=1)
            if name.startswith(path) and re.search(pattern, line)
        ]
        return "\n".join([*found[:SEARCH_HITS], f"({len(found)} matches in all)"])

    def write_file(self, path: str, text: str) -> str:
        """Write a whole file, in place of the one that is there."""
        self.files[path] = text
        return f"{path}: {len(text.splitlines())} lines written"

    def run_tests(self, path: str) -> str:
        """Run pytest and show what it prints."""
        lines, failures, failed, run = ["=" * 29 + " test session starts " + "=" * 29], [], 0, 0
        for file in (name for name in self.files if name.startswith("tests/") and name.startswith(path)):
            source = file.replace("tests/", "ferry/").replace("test_", "")
            fails = ("Cents" in self.files[source]) == (".25" in self.files[file])
            for name in re.findall(r"def test_(\w+)", self.files[file]):
                run, failed = run + 1, failed + fails
                lines.append(f"{file}::test_{name} {'FAILED' if fails else 'PASSED'} [{run:>4}]")
                error = "E   TypeError: unsupported operand type(s) for -: 'Cents' and 'float'"
                failures += [f"_____ test_{name} _____", error, f"{source}:{31 * run % 97}: in {name}"] * fails
        counts = f"{failed} failed, {run - failed} passed" if failed else f"{run} passed"
        return "\n".join([*lines, *failures, f"===== {counts} in {1.2 + run * 0.043:.2f}s ====="])


def _choose_words(place: int, number: int) -> dict[str, object]:
    """The words that a function and its test are made of. The function's name is unique within its module."""
    verb = _VERBS[(place * 5 + number) % len(_VERBS)]
    noun = _NOUNS[(place * 3 + number * 2) % len(_NOUNS)]
    party = _PARTIES[(place + number * 4) % len(_PARTIES)]
    return {"name": f"{verb}_{party}_{noun}", "noun": noun, "party": party, "number": 10 + (place * 31 + number) % 89}
