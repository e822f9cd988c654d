"""docs/reference/headers.md lists every header that the code names, and shows values as they are written."""

import ast
import re
from datetime import UTC, datetime

from support.reference_pages import find_all, find_code, read_literal, read_page, read_rows, read_section

from trimtab.proxy.account.budgets import Spent
from trimtab.proxy.exchange.tell import write_ledger_headers, write_own_headers
from trimtab.proxy.http.headers import (
    ADMITTING_HEADERS,
    HOP_BY_HOP,
    KEY_HEADER,
    OWN_PREFIX,
    REWRITING_HEADERS,
    SESSION_HEADERS,
)
from trimtab.proxy.http.request_body import ENTITY_HEADERS
from trimtab.proxy.telemetry.ledger import Ledger, UsedSummary
from trimtab.rules.conversation import Decision
from trimtab.rules.pipeline.appended import PIN, RECALL
from trimtab.rules.pipeline.shortening import ARGUMENTS, MEMORY, TRUNCATE_USERS
from trimtab.rules.results.excerpt import TRUNCATE
from trimtab.rules.results.tidy import TIDY
from trimtab.rules.tokens.sections import Sections

PAGE = "headers.md"
OWN_NAME = re.compile(rf"{OWN_PREFIX}[a-z]+(-[a-z]+)*")
WORD = r"[A-Za-z*][\w!#$%&'*+.^`|~:/-]*"
INTEGER = r"-?\d{1,15}"
DICTIONARY = re.compile(rf"[a-z]\w*={INTEGER}(, [a-z]\w*=({INTEGER}|\?1))*")
ITEM = rf"{WORD}(;[a-z]+={INTEGER})+"
LIST = re.compile(rf"{ITEM}(, {ITEM})*")
STRING_WITH_PARAMETERS = re.compile(rf'"[0-9a-f]{{1,64}}";kind={WORD};messages={INTEGER}')
"""The part of RFC 9651 that these headers use."""


def _names_in(title: str) -> set[str]:
    return {name for row in read_rows(read_section(PAGE, title)) for name in find_code(row[0])}


def _find_own_name(node: ast.AST) -> str | None:
    literal = read_literal(node)
    return literal if literal is not None and OWN_NAME.fullmatch(literal) else None


def _find_read_name(node: ast.AST) -> str | None:
    """The literal name of the header that a call of `headers.get` or `headers.getall` reads."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
        return None
    asks = node.func.attr in {"get", "getall"} and ast.unparse(node.func.value).endswith("headers")
    return read_literal(node.args[0]) if asks else None


def _find_rule(node: ast.AST) -> str | None:
    """The literal name of the rule in a `Decision(...)`, `replace_messages(...)` or `note(...)`, which make one."""
    places = {"Decision": 0, "replace_messages": 2, "note": 0}
    is_decision = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in places
    return read_literal(node.args[places[node.func.id]]) if is_decision else None


def _find_cut_rule(node: ast.AST) -> str | None:
    """The names of the rules for a cut, which depend on the author of its summary."""
    is_rule = isinstance(node, ast.IfExp) and ast.unparse(node.test).endswith("by_model")
    return f"{read_literal(node.body)} {read_literal(node.orelse)}" if is_rule else None


def test_the_page_has_every_header_of_trimtabs_own_and_no_other() -> None:
    in_code = {*find_all(("proxy",), _find_own_name), KEY_HEADER}
    on_page = _names_in("Request headers of trimtab") | _names_in("Response headers of trimtab")

    assert on_page - {"Server-Timing"} == in_code


def test_response_headers_and_their_examples_are_what_trimtab_writes() -> None:
    """The function that writes the headers returns each row's example."""
    rows = read_rows(read_section(PAGE, "Response headers of trimtab"))
    examples = {name.strip("`"): example.strip("`") for name, _, example in rows}
    ledger = Ledger()
    ledger.note(1, 119808, [Decision("truncate", "", 41230, 31430, 1, 0), Decision("prune", "", 31430, 17002, 1, 0)])
    used = UsedSummary("3f9a" * 16, "summarise", 34)
    sections = Sections(5200, 0, 0, 35930, 100), Sections(5200, 1410, 0, 10292, 100)
    tokens = {"original": 41230, "sent": 17002, "limit": 119808, "high_water": True}
    written = write_own_headers("08ddcb468de5a69689374951", 0.0019, "compacted", tokens)

    until = datetime(2026, 12, 31, tzinfo=UTC)
    budget = Spent(20_000_000, "tokens a day", until, 43_201, refuses=False).header
    ledgers = write_ledger_headers(*sections, ledger.entries, used)
    values = dict([*written, *ledgers, ("x-trimtab-budget", budget)])
    assert values == examples
    assert DICTIONARY.fullmatch(values["x-trimtab-tokens"])
    assert LIST.fullmatch(values["x-trimtab-decisions"])
    assert LIST.fullmatch(values["x-trimtab-sections"])
    assert STRING_WITH_PARAMETERS.fullmatch(values["x-trimtab-summary"])


def test_the_page_has_every_rule_that_a_decision_may_name() -> None:
    """Each rule is also a valid token in a list of RFC 9651."""
    text = read_section(PAGE, "Response headers of trimtab").split("The rules are ")[1].split(".")[0]
    cuts = {name for names in find_all(("rules",), _find_cut_rule) for name in names.split()}
    in_code = {
        *find_all(("rules",), _find_rule),
        TIDY.rule,
        TRUNCATE.rule,
        MEMORY,
        TRUNCATE_USERS,
        PIN,
        RECALL,
        ARGUMENTS,
    } | (cuts & {"summarise", "digest"})

    assert set(find_code(text)) == in_code
    assert all(re.fullmatch(WORD, rule) for rule in in_code)


def test_the_page_has_every_header_that_stays_on_its_hop() -> None:
    listed = read_section(PAGE, "Headers that stay on one hop").split("The source")[0]
    names = {name.lower() for name in find_code(listed)}

    assert names == HOP_BY_HOP


def test_the_page_has_every_header_that_is_dropped_replaced_or_read() -> None:
    changed = {name.lower() for name in _names_in("Request headers that are not forwarded or are changed")}
    other = {name.lower() for name in _names_in("Other request headers that trimtab reads")}
    read_by_name = {
        name.lower() for name in find_all(("proxy/http", "proxy/server", "proxy/exchange"), _find_read_name)
    }

    assert changed >= REWRITING_HEADERS | {name.lower() for name in ENTITY_HEADERS}
    assert other >= ADMITTING_HEADERS - {KEY_HEADER}
    assert {name.lower() for name in find_code(read_page(PAGE))} >= SESSION_HEADERS
    assert {name.lower() for name in find_code(read_page(PAGE))} >= read_by_name - {KEY_HEADER}
    assert read_by_name
