"""What the pages quote from trimtab is what trimtab prints: messages, log lines, tables and markers."""

import re
from pathlib import Path

import pytest
from handbook.reference import markers
from support.reference_pages import ROOT, find_all, find_code, read_literal, read_rows

from trimtab.proxy.telemetry.logs import describe_request

DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
GUIDES = sorted((DOCS / "guides").glob("*.md"))
TROUBLE = "If it does not work"
"""The section of a guide whose table quotes what its reader sees, in the first column."""
OF_OTHERS = {
    "CrashLoopBackOff", "container has runAsNonRoot and image has non-numeric user", "OOMKilled",
    "ContextWindowExceededError", "unhealthy",
    "status=2", "systemctl status", "SIGKILL",
}  # fmt: skip
"""Texts of Kubernetes, LiteLLM, Docker and systemd."""
NO_QUOTES = {
    "type: trimtab_error",
    'model="other"',
    "trimtab_estimate_error_ratio",
    "reason='status 400'",
}
"""Names and values that are put together when they are printed. Other tests read them."""
GAP = re.compile(r"\.\.\.|\d+")
"""What may differ between a quotation and the source: what the page leaves out, and numbers."""
MARKER = re.compile(r"\[trimtab: [^\]\n]*\]")
REQUEST_LINE = re.compile(r"^(?:[\d:]{8} )?(\S+ (?:\(\S+\) )?\d{3} (?:unchanged|compacted) .*)$", re.MULTILINE)
LINE = re.compile(
    r"(?P<model>\S+) (?:\((?P<match>\S+)\) )?(?P<status>\d+) (?P<outcome>\w+)"
    r" (?P<original>\d+)(?:→(?P<sent>\d+))? tokens \(limit (?P<limit>\d+)\) (?:(?P<rules>[a-z,]+) )?"
    r"(?P<out>\d+) out (?P<time>[\d.]+)(?P<unit>m?s) (?P<method>\w+) (?P<path>\S+) → (?P<upstream>\S+) (?P<id>\w+)"
)
"""The parts of a request's line, as docs/reference/logs.md lists them."""


def read_source() -> list[str]:
    """Every string literal of the program; of an f-string, each fixed part."""
    return list(filter(None, find_all(("proxy", "rules"), read_literal)))


def read_trouble(page: Path) -> str:
    """The section TROUBLE of a guide; empty if it has none."""
    return page.read_text("utf-8").partition(f"\n## {TROUBLE}\n")[2].partition("\n## ")[0]


def simplify(text: str) -> str:
    """The text with each number as 0, and each quotation as the same one."""
    return re.sub(r"\d+", "0", re.sub(r'"[^"\n]+"', '"quoted"', text))


def test_every_message_that_a_guide_explains_is_one_of_the_program() -> None:
    quotes = {
        (page.name, quote) for page in GUIDES for row in read_rows(read_trouble(page)) for quote in find_code(row[0])
    }
    source = read_source()
    foreign = {
        (page, quote)
        for page, quote in quotes
        for part in GAP.split(quote)
        if not any(part.strip() in literal for literal in source)
    }

    assert {quote for _, quote in foreign} == OF_OTHERS | NO_QUOTES
    assert len(quotes) > 30


def test_every_quoted_marker_is_one_of_the_markers_page() -> None:
    forms = {simplify(text) for entry in markers.list_entries() for text in MARKER.findall(entry.text)}
    quoted = {
        (page.name, marker)
        for page in PAGES
        if page.name != "markers.md"
        for marker in MARKER.findall(page.read_text("utf-8"))
        if "..." not in marker and "^" not in marker
    }

    assert [one for one in quoted if simplify(one[1]) not in forms] == []
    assert quoted


@pytest.mark.parametrize("name", ["guides/agent-cli.md", "reference/logs.md", "tutorial.md"])
def test_a_quoted_request_line_has_the_form_of_the_log(name: str) -> None:
    """The line is written again from its own values."""
    lines = [line for line in REQUEST_LINE.findall((DOCS / name).read_text("utf-8")) if not line.endswith("...")]

    assert lines
    for line in lines:
        assert describe_request(read_fields(line)) == line


def read_fields(line: str) -> dict[str, object]:
    """The fields of the `request` event that a line shows."""
    found = LINE.fullmatch(line)
    assert found is not None, line
    seconds = float(found["time"]) / (1000 if found["unit"] == "ms" else 1)
    rules = found["rules"].split(",") if found["rules"] else ()
    return {
        "model": found["model"],
        "match": found["match"],
        "status": int(found["status"]),
        "outcome": found["outcome"],
        "original_tokens": int(found["original"]),
        "sent_tokens": int(found["sent"] or found["original"]),
        "limit_tokens": int(found["limit"]),
        "decisions": [{"rule": rule} for rule in rules],
        "completion_tokens": int(found["out"]),
        "seconds": seconds,
        "method": found["method"],
        "path": found["path"],
        "upstream": found["upstream"],
        "request_id": found["id"],
    }
