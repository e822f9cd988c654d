"""The Grafana dashboard as JSON, made of the panels and of the help texts in the table of metrics."""

import re
from collections.abc import Iterator
from typing import Any

from monitoring.panels import ROWS, Panel
from trimtab.proxy.telemetry.metrics import Metrics

COLUMNS = 24
"""The width of a dashboard. Source: Grafana's dashboard JSON model."""
SIZES = {"stat": (6, 4), "timeseries": (8, 8)}
"""Width and height of each kind of panel. Chosen: four figures or three charts side by side."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OF_WORKERS = {
    "trimtab_worker_up": "Whether this worker runs: 1 or 0. Only with several workers.",
    "trimtab_worker_restarts": "How often this worker was started again. Only with several workers.",
}
"""The help of the metrics that are not in the table, because a single process does not have them."""
_ENDS = ("_total", "_bucket", "_sum", "_count", "_info")


def find_names(query: str) -> list[str]:
    """The metrics in a query, as the table names them, in order."""
    found = re.findall(r"\b(?:trimtab|process)_\w+", query)
    return list(dict.fromkeys(re.sub(f"({'|'.join(_ENDS)})$", "", name) for name in found))


def write_dashboard() -> dict[str, Any]:
    """The dashboard, to be imported into Grafana 10 or newer."""
    return {
        "title": "trimtab",
        "uid": "trimtab",
        "description": "What trimtab removes, what that saves, and whether anything is wrong.",
        "tags": ["trimtab", "llm"],
        "schemaVersion": 38,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_choose_source(), _choose_model()]},
        "panels": list(_place_all()),
    }


def _choose_source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _choose_model() -> dict[str, Any]:
    return {
        "name": "model",
        "label": "Model",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": "label_values(trimtab_requests_total, model)", "refId": "model"},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _place_all() -> Iterator[dict[str, Any]]:
    help_texts = OF_WORKERS | {family.name: family.documentation for family in Metrics().registry.collect()}
    number = top = 0
    for title, panels in ROWS.items():
        number += 1
        place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        top += 1
        left = tallest = 0
        for panel in panels:
            width, height = SIZES[panel.kind]
            if left + width > COLUMNS:
                left, top, tallest = 0, top + tallest, 0
            number += 1
            yield _write(panel, number, {"x": left, "y": top, "w": width, "h": height}, help_texts)
            left, tallest = left + width, max(tallest, height)
        top += tallest


def _write(panel: Panel, number: int, place: dict[str, int], help_texts: dict[str, str]) -> dict[str, Any]:
    names = dict.fromkeys(name for query in panel.queries.values() for name in find_names(query))
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.stacked:
        defaults["custom"] = {"stacking": {"mode": "normal"}, "fillOpacity": 30}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": "\n\n".join(f"`{name}`: {help_texts[name]}" for name in names if name in help_texts),
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
    }
