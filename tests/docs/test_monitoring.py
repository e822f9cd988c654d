"""The Grafana dashboard and the alert rules fit the metrics, and Prometheus' own tool accepts the rules."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from monitoring.alerts import ALERTS
from monitoring.dashboard import OF_WORKERS, find_names
from monitoring.files import DASHBOARD, FOLDER, RULES, annotate, write_files
from monitoring.panels import NOT_SHOWN, ROWS

from trimtab.proxy.telemetry.families import Counter, Histogram
from trimtab.proxy.telemetry.metrics import Metrics

FILES = Path(__file__).parents[2] / "docs" / FOLDER
PROMTOOL = shutil.which("promtool")
OF_TARGET = {"instance", "job"}
"""Labels that Prometheus itself adds."""
PANELS = [panel for panels in ROWS.values() for panel in panels]
QUERIES = [query for panel in PANELS for query in panel.queries.values()] + [alert.query for alert in ALERTS]


def read_table() -> dict[str, set[str]]:
    """The labels of each metric."""
    own = vars(Metrics()).values()
    found = {one.name: {*one.labels} for one in own if isinstance(one, Counter)}
    found |= {one.name: {*one.labels, "le"} for one in own if isinstance(one, Histogram)}
    found["trimtab_build"] = {"version", "python"}
    return found | {name: {"worker"} for name in OF_WORKERS}


def run_promtool(*arguments: str | Path) -> str:
    """What promtool says; it must be content."""
    if PROMTOOL is None:
        pytest.skip("promtool is not installed: apt-get install --no-install-recommends prometheus")
    done = subprocess.run([PROMTOOL, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", [DASHBOARD, RULES])
def test_the_files_are_what_the_code_makes(name: str) -> None:
    """Else: python scripts/site/generate.py."""
    assert (FILES / name).read_text("utf-8") == write_files()[name]


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_asks_for_metrics_and_labels_that_exist(query: str) -> None:
    """Also the labels by which it sums."""
    table = read_table()
    names = find_names(query)
    own = [name for name in names if name.startswith("trimtab_")]
    assert names or query.startswith("up{")
    assert set(own) <= table.keys()
    known = OF_TARGET.union(*(table[name] for name in own))
    for selected in re.findall(r"[a-z]\{([^}]*)\}", query):
        assert set(re.findall(r"(\w+)\s*[=!]", selected)) <= known
    for listed in re.findall(r"\b(?:by|on) \(([^)]*)\)", query):
        assert {label.strip() for label in listed.split(",")} <= known


def test_prometheus_can_read_every_query_of_the_dashboard(tmp_path: Path) -> None:
    """Its check of rules reads them, after Grafana's variables have values."""
    values = {"$__rate_interval": "5m", "$__range": "1h", "$model": "m"}
    queries = [query for panel in PANELS for query in panel.queries.values()]
    for name, value in values.items():
        queries = [query.replace(name, value) for query in queries]
    rules = [{"record": f"panel:{index}", "expr": query} for index, query in enumerate(queries)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), "utf-8")
    assert f"{len(rules)} rules found" in run_promtool("check", "rules", file)


def test_every_metric_is_shown_or_has_a_reason() -> None:
    """A new metric needs a panel, or a line in NOT_SHOWN."""
    shown = {name for panel in PANELS for query in panel.queries.values() for name in find_names(query)}
    assert read_table().keys() - shown == NOT_SHOWN.keys()


def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    """Prometheus' own tests of rules, with series that make it fire and series that do not. It names what fails.

    Each rule is a file of its own: promtool evaluates all rules of a file for each of its series.
    """
    rules = yaml.safe_load((FILES / RULES).read_text("utf-8"))["groups"][0]["rules"]
    files = []
    for alert, rule in zip(ALERTS, rules, strict=True):
        fired = {
            "exp_labels": {"severity": alert.severity, **alert.told},
            "exp_annotations": annotate(alert, alert.told),
        }
        tests = [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": [{"eval_time": alert.at, "alertname": alert.name, "exp_alerts": expected}],
            }
            for series, expected in ((alert.fires, [fired]), (alert.quiet, []))
        ]
        own = tmp_path / f"{alert.name}.rules.yml"
        own.write_text(yaml.safe_dump({"groups": [{"name": "trimtab", "rules": [rule]}]}), "utf-8")
        files.append(tmp_path / f"{alert.name}.yml")
        told = {"rule_files": [own.name], "evaluation_interval": "1m", "tests": tests}
        files[-1].write_text(yaml.safe_dump(told), "utf-8")
    assert run_promtool("test", "rules", *files).count("SUCCESS") == len(ALERTS)


def test_the_guide_names_every_alert() -> None:
    """And no other."""
    page = (FILES.parents[1] / "guides" / "prometheus.md").read_text("utf-8")
    assert re.findall(r"^\| `(Trimtab\w+)` \|", page, re.MULTILINE) == [alert.name for alert in ALERTS]
