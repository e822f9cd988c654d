"""What is told of requests has the names that it had: of fields, headers, metrics, spans, and members of JSON.

The real command runs once, and gets one request of each kind. What it tells must be as in `tests/data/golden/names`,
without what varies: numbers, ids and texts. Others read these names, so none changes by accident. If a change is meant,
it belongs into the change log; write the files anew and read the difference:
`WRITE_GOLDEN=1 .venv/bin/pytest -n0 tests/names`.
"""

import asyncio
import re
from collections import defaultdict
from typing import Any

import orjson
import pytest
from names.run import CUT, Told, run
from names.shapes import blur, describe, list_members
from support.command_line import run_trimtab
from support.golden import check_golden


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What the command has told of all scenes."""
    return asyncio.run(run(tmp_path_factory.mktemp("told")))


def check(name: str, texts: dict[str, str]) -> None:
    """Compare texts, by their titles, with a file of names."""
    check_golden(f"names/{name}", texts)


def test_log_lines(told: Told) -> None:
    """All fields, and which of them the line of each scene has."""
    own = {f"{scene}: {line['outcome']}": list_members([line]) for scene, line in told.lines.items()}
    check("log", {"fields": describe(told.lines.values()), **own})


def test_other_log_lines(told: Told) -> None:
    grouped: dict[str, list[Any]] = defaultdict(list)
    for line in told.other_lines:
        grouped[line["event"]].append(line)
    check("log-others", {event: describe(lines) for event, lines in sorted(grouped.items())})


def test_headers_of_answers(told: Told) -> None:
    ours = re.compile(r"(?i)x-trimtab-|server-timing")
    check(
        "headers",
        {
            scene: "\n".join(sorted(f"{name}: {blur(value)}" for name, value in headers.items() if ours.match(name)))
            for scene, headers in told.headers.items()
        },
    )


def test_series_on_the_metrics_page(told: Told) -> None:
    """The metrics that the scenes change, with their labels and the values of these; any model is `*`."""
    page = re.sub(r"(?m)^(?:#|python_|process_).*\n", "", told.metrics)
    named = (line.rpartition(" ")[0] for line in page.splitlines())
    blurred = (
        re.sub(r'\ble="[^"]*",?', "", re.sub(r'\b(model|python|version)="[^"]*"', r'\1="*"', one)) for one in named
    )
    check("metrics", {"series": "\n".join(sorted({one.replace("{}", "") for one in blurred}))})


def test_spans(told: Told) -> None:
    """All attributes, and which of them the spans have: those of requests, by outcome, and of calls for summaries."""
    grouped: dict[str, list[Any]] = defaultdict(list)
    for span in told.spans:
        outcome = span.attributes.get("trimtab.outcome", "of one attempt")
        title = f"{'summary' if span.is_summary else outcome}: {span.name.split()[0]}, kind {span.kind}"
        grouped[title].append(span.attributes)
    events = "\n".join(sorted({name for span in told.spans for name in span.events}))
    whole = {"attributes": describe(span.attributes for span in told.spans), "events": events}
    whole["resource"] = describe(span.resource for span in told.spans)
    check("spans", whole | {title: list_members(spans) for title, spans in sorted(grouped.items())})


def test_answers_of_the_dashboard(told: Told) -> None:
    check("dashboard", {path: describe([page]) for path, page in told.pages.items()})


def test_events_of_the_dashboard(told: Told) -> None:
    """The first totals are those before the first request."""
    requests = [data for name, data in told.events if name == "request"]
    totals = next(data for name, data in told.events if name == "totals")
    check("dashboard-events", {"request": describe(requests), "totals": describe([totals])})


def test_statuses_of_pages(told: Told) -> None:
    check("pages", {"status and content type": "\n".join(f"{page}: {told.statuses[page]}" for page in told.statuses)})


def test_recordings(told: Told) -> None:
    check("recordings", {"request": describe(told.recordings), "call for a summary": describe(told.calls)})


def test_json_of_commands(told: Told) -> None:
    """Of the commands that read what the proxy has kept."""
    folder, request_id = told.folder / "recordings", told.lines[CUT]["request_id"]
    commands = {
        "inspect --json": ("inspect", "--json", "--limit", "50", "--dir", folder),
        "inspect ID --json": ("inspect", request_id, "--json", "--dir", folder),
        "inspect ID --json --diff": ("inspect", request_id, "--json", "--diff", "--dir", folder),
        "replay RECORDINGS": ("replay", folder),
        **{f"stats --json --by {by}": ("stats", "--json", "--by", by, *told.settings) for by in ("model", "client")},
    }
    answers = {title: _run(*command) for title, command in commands.items()}
    answers["inspect ID --json --diff"] = answers["inspect ID --json --diff"]["changes"]  # the rest is as without it
    check("commands-json", {title: describe([answer]) for title, answer in answers.items()})


def _run(*command: Any) -> Any:
    result = run_trimtab(*command)
    assert result.exit_code == 0, result.output
    return orjson.loads(result.stdout)


def test_a_scene_of_each_outcome(told: Told) -> None:
    """So that no kind of request is missing here; that of a client that leaves depends on time."""
    seen = {line["outcome"] for line in told.lines.values()}
    assert {"unchanged", "compacted", "passed", "undecodable", "broken"} <= seen
