"""The repository that the demo's agent works in: a ferry line's booking service that exists nowhere else.

Law: pure and deterministic. Every text is a function of its arguments: files before and after the work, searches in
them, logs of their tests.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

PACKAGES = {
    "fares": ("pricing", "discounts", "surcharges", "season", "currency", "bundles"),
    "bookings": ("cart", "hold", "confirm", "cancel", "refund", "voucher"),
    "billing": ("invoice", "ledger", "payout", "tax", "reconcile", "export"),
    "desk": ("quotes", "orders", "webhooks", "reports", "kiosk", "agents"),
}
SEARCH_HITS = 40
FLOAT, CENTS = "float", "Cents"

_VERBS = ("compute", "apply", "split", "check", "merge", "settle", "quote", "reverse", "carry", "cap", "share", "post")
_NOUNS = ("fare", "deposit", "fee", "balance", "surcharge", "credit", "rebate", "toll", "total", "refund", "levy")
_PARTIES = ("passenger", "vehicle", "group", "harbour", "agent", "cabin", "pet", "bicycle", "crew", "freight", "child")
_REASONS = (
    "A crossing that was called off never costs the {party} anything.",
    "The {noun} of the {party} is rounded half to even, as the auditors asked in 2019.",
    "Harbour {number} books the {noun} a day late; see the ledger's notes.",
    "Night crossings count as the day on which they sail.",
    "Kept apart from the {noun} itself because the {party} may waive it.",
    "At most {number} of these stand on one ticket.",
)
_BODIES = (
    """\
    if {noun} < ZERO:
        raise FareError(f"{noun} of {party} {{{party}.id}} is negative: {{{noun}}}")
    rate = RATES.get(({party}.kind, sailing.season), DEFAULT_RATE)
    return quantize({noun} * rate / {number})
""",
    """\
    shares = [{noun} * leg.miles / sailing.miles for leg in sailing.legs]
    missing = {noun} - sum(shares, ZERO)
    if shares and missing:
        shares[-1] += missing
    log.debug("{name}: %d legs, %s over", len(shares), missing)
    return max(shares, default=ZERO)
""",
    """\
    entry = ledger.find({party}.id, kind="{noun}")
    if entry is None or entry.closed_at is not None:
        return {noun}
    due: MONEY = {noun} - entry.amount
    ledger.append(Entry({party}.id, "{noun}", due, reason="{name}", harbour={number}))
    return max(due, ZERO)
""",
    """\
    steps = sorted(TABLE_{number}.items(), reverse=True)
    for threshold, discount in steps:
        if {noun} >= threshold and {party}.kind not in EXEMPT:
            return quantize({noun} - {noun} * discount)
    return {noun}
""",
    """\
    with audit.span("{name}", {party}={party}.id) as span:
        base: MONEY = sum((line.amount for line in {party}.lines), ZERO)
        if base + {noun} > LIMIT_{number}:
            span.warn("over the limit", base=base, {noun}={noun})
            return LIMIT_{number} - base
        return base + {noun}
""",
)


@dataclass(frozen=True, slots=True)
class Function:
    """One function of a module; `shape` picks its body, `number` is a constant in it."""

    name: str
    noun: str
    party: str
    shape: int
    number: int


@dataclass(frozen=True, slots=True)
class Module:
    """A module with its functions, and its place in the list of all modules."""

    package: str
    name: str
    functions: tuple[Function, ...]

    @property
    def path(self) -> str:
        """Where its source stands."""
        return f"ferry/{self.package}/{self.name}.py"

    @property
    def test_path(self) -> str:
        """Where its tests stand."""
        return f"tests/{self.package}/test_{self.name}.py"


def list_modules() -> tuple[Module, ...]:
    """All modules, in the order in which the agent takes them up."""
    names = [(package, name) for package, modules in PACKAGES.items() for name in modules]
    return tuple(
        Module(package, name, tuple(_make_function(place, number) for number in range(4 + place * 7 % 9)))
        for place, (package, name) in enumerate(names)
    )


def _make_function(place: int, number: int) -> Function:
    """A function whose name is its own within the module."""
    verb = _VERBS[(place * 5 + number) % len(_VERBS)]
    noun = _NOUNS[(place * 3 + number * 2) % len(_NOUNS)]
    party = _PARTIES[(place + number * 4) % len(_PARTIES)]
    constant = 2 + (place * 31 + number * 17) % 97
    return Function(f"{verb}_{party}_{noun}", noun, party, (place + number) % len(_BODIES), constant)


def write_source(module: Module, *, migrated: bool) -> str:
    """The module's source, with amounts as floats, or as integer cents once it is migrated."""
    money = CENTS if migrated else FLOAT
    lines = [
        f'"""{module.name.capitalize()}: what the {module.package} package knows of it."""\n',
        "import logging\n",
        "from ferry.core import FareError, Ledger, Party, Sailing, audit",
        f"from ferry.money import {'CENTS_ZERO as ZERO, Cents' if migrated else 'FLOAT_ZERO as ZERO'}, quantize",
        f"from ferry.{module.package}.tables import DEFAULT_RATE, EXEMPT, RATES\n",
        "log = logging.getLogger(__name__)\n",
    ]
    return "\n".join(lines) + "".join(_write_function(function, money) for function in module.functions)


def _write_function(function: Function, money: str) -> str:
    party, noun = function.party, function.noun
    words = {"name": function.name, "noun": noun, "party": party, "number": function.number}
    reason = _REASONS[function.number % len(_REASONS)].format(**words)
    body = _BODIES[function.shape].format(**words).replace("MONEY", money)
    arguments = f"{party}: Party, {noun}: {money}, sailing: Sailing, ledger: Ledger"
    return f'\n\ndef {function.name}({arguments}) -> {money}:\n    """{reason}"""\n{body}'


def write_tests(module: Module, *, migrated: bool) -> str:
    """The module's tests."""
    names = ", ".join(function.name for function in module.functions)
    head = f"import pytest\n\nfrom ferry.{module.package}.{module.name} import {names}\n"
    tests = [
        f"\n\ndef test_{function.name}(sailing, ledger) -> None:\n"
        f'    {function.party} = make_party("{function.party}", id={4100 + function.number})\n'
        f"    amount = {function.name}({function.party}, {_amount(function, migrated=migrated)}, sailing, ledger)\n"
        f"    assert amount == {_amount(function, migrated=migrated)}\n"
        for function in module.functions
    ]
    return head + "".join(tests)


def _amount(function: Function, *, migrated: bool) -> str:
    cents = 1000 + function.number * 37
    return str(cents) if migrated else f"{cents / 100:.2f}"


def write_diff(path: str, before: str, after: str) -> str:
    """The change of a file as a unified diff."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), f"a/{path}", f"b/{path}", n=1, lineterm="")
    return "\n".join(lines)


def number_lines(text: str) -> str:
    """A file as the agent's tool shows it."""
    return "\n".join(f"{number:>5}  {line}" for number, line in enumerate(text.splitlines(), start=1))


def search(pattern: str, files: Iterable[tuple[str, str]]) -> str:
    """Lines that match, as `path:line: text`; `files` are pairs of path and text."""
    found = [
        f"{path}:{number}: {line.strip()}"
        for path, text in files
        for number, line in enumerate(text.splitlines(), start=1)
        if re.search(pattern, line)
    ]
    shown = found[:SEARCH_HITS]
    rest = [f"({len(found) - len(shown)} more matches not shown)"] if len(found) > len(shown) else []
    return "\n".join([*shown, *rest]) or "no matches"


def write_test_log(modules: Sequence[Module], failing: Sequence[Module], run: int) -> str:
    """What the test runner prints: every test, then the failures of the modules in `failing`, then the count.

    `run` numbers the runs of a session: it enters the times that are printed.
    """
    tests = [(module, function) for module in modules for function in module.functions]
    failed = [(module, function) for module in failing for function in module.functions[:3]]
    head = ["=" * 29 + " test session starts " + "=" * 29, "platform linux -- Python 3.12.4, pytest-8.3.3"]
    head += ["rootdir: /srv/ferry", "configfile: pyproject.toml", f"collected {len(tests)} items", ""]
    verdicts = [
        f"{module.test_path}::test_{function.name} {'FAILED' if (module, function) in failed else 'PASSED'}"
        f" [{100 * number // len(tests):>3}%]"
        for number, (module, function) in enumerate(tests, start=1)
    ]
    traces = chain.from_iterable(_write_failure(module, function) for module, function in failed)
    titles = ["", "=" * 35 + " FAILURES " + "=" * 35] if failed else [""]
    counts = f"{len(failed)} failed, {len(tests) - len(failed)} passed" if failed else f"{len(tests)} passed"
    seconds = 1.2 + len(tests) * 0.043 + run * 0.07
    return "\n".join(
        [*head, *verdicts, *titles, *traces, *_write_warnings(modules), f"===== {counts} in {seconds:.2f}s ====="]
    )


def _write_warnings(modules: Sequence[Module]) -> list[str]:
    """What the runner complains of at the end of a run of the whole suite."""
    if len(modules) <= len(PACKAGES["fares"]):
        return []
    title = "=" * 31 + " warnings summary " + "=" * 31
    return [
        title,
        *(
            f"{module.test_path}::test_{function.name}\n  /srv/ferry/{module.path}:{9 + function.number}:"
            f" DeprecationWarning: TABLE_{function.number} is read at import; use tables.load({function.noun!r})"
            for module in modules
            for function in module.functions[::4]
        ),
    ]


def _write_failure(module: Module, function: Function) -> list[str]:
    wanted, got = _amount(function, migrated=True), _amount(function, migrated=False)
    line = 7 + function.number % 60
    return [
        f"_____ test_{function.name} _____",
        "",
        f"    def test_{function.name}(sailing, ledger) -> None:",
        f'        {function.party} = make_party("{function.party}", id={4100 + function.number})',
        f">       amount = {function.name}({function.party}, {wanted}, sailing, ledger)",
        f"E       TypeError: unsupported operand type(s) for -: 'Cents' and 'float' ({wanted} - {got})",
        "",
        f"{module.path}:{line * 3}: in {function.name}",
        f"{module.test_path}:{line}: TypeError",
        "----- Captured log call -----",
        f"WARNING  ferry.{module.package}.{module.name}:{module.name}.py:{line * 3} {function.name}: {got} over",
    ]
