"""Every collector."""

import asyncio
import re
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from trimtab.proxy.telemetry.families import Counter, Histogram
from trimtab.proxy.telemetry.metrics import MAX_MODEL_LABELS, OTHER, Metrics, MetricsPages
from trimtab.rules.conversation import Decision

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "metrics.md"
LIBRARY_PREFIXES = ("process_", "python_")
"""Prefixes of the metrics that prometheus_client itself reports about the process."""

Contract = dict[str, frozenset[str]]
"""Each metric's labels, by its name as Prometheus reads it."""


def _families(metrics: Metrics) -> list[Counter | Histogram]:
    return [one for one in vars(metrics).values() if isinstance(one, Counter | Histogram)]


def _read_code() -> Contract:
    """The labels of the metric of the build are those of its one sample."""
    found = {f"{one.name}{'_total' if one.kind == 'counter' else ''}": one.labels for one in _families(Metrics())}
    return {name: frozenset(labels) for name, labels in found.items()} | {
        "trimtab_build_info": frozenset({"version", "python"})
    }


def _read_page() -> Contract:
    """The names and labels in the reference page's tables; labels are in the column of that heading."""
    found: Contract = {}
    column = 0
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")] if line.startswith("|") else []
        if "Labels" in cells:
            column = cells.index("Labels")
        elif cells and cells[0].startswith("`trimtab_"):
            found |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), frozenset(re.findall(r"`(\w+)`", cells[column])))
    return found


def _fill(metrics: Metrics) -> bytes:
    """Give each series a value. Prometheus sees no series with labels before that."""
    for family in _families(metrics):
        labels = family.labels if len(family.labels) > 1 else family.labels[0] if family.labels else ()
        if isinstance(family, Histogram):
            family.observe(labels, 1)
        elif labels:
            family[labels] += 1
    return metrics.render()


def _samples(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """The values of one counter that are not zero, by their labels."""
    (labels,) = [one.labels for one in _families(metrics) if one.name == name]
    families = {family.name: family for family in text_string_to_metric_families(metrics.render().decode())}
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for sample in families[name].samples
        if sample.name.endswith("_total") and sample.value
    }


def test_the_metrics_page_names_every_metric_with_its_labels() -> None:
    assert _read_page() == _read_code()


def test_nothing_else_is_shown_but_the_process() -> None:
    names = {family.name for family in text_string_to_metric_families(_fill(Metrics()).decode())}
    others = {name for name in names if not name.startswith("trimtab_")}

    assert {"python_info", "python_gc_collections"} <= others
    if Path("/proc/self/stat").exists():  # other systems do not report these
        assert {"process_resident_memory_bytes", "process_cpu_seconds", "process_open_fds"} <= others
    assert all(name.startswith(LIBRARY_PREFIXES) for name in others)


def test_both_forms_tell_the_same() -> None:
    metrics = Metrics()
    plain = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(_fill(metrics).decode())
        for sample in family.samples
    }
    text = metrics.render(as_open_metrics=True).decode()
    families = list(open_metrics.text_string_to_metric_families(text))
    changing = ("process_", "python_gc_")

    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples
    }
    assert text.endswith("# EOF\n")
    assert {key for key in plain if not key[0].startswith(changing)} <= found.keys()
    assert all(found[key] == value for key, value in plain.items() if not key[0].startswith(changing))
    assert {family.name: family.unit for family in families}["trimtab_cost_usd"] == "usd"


def test_the_last_reload_is_told_from_the_start() -> None:
    before = time.time()
    metrics = Metrics()
    at = metrics.registry.get_sample_value("trimtab_config_last_reload_success_timestamp_seconds")
    told = [metrics.registry.get_sample_value("trimtab_config_last_reload_successful")]
    metrics.note_reload(at=None)
    told.append(metrics.registry.get_sample_value("trimtab_config_last_reload_successful"))

    assert at is not None
    assert before <= at <= time.time()
    assert metrics.registry.get_sample_value("trimtab_config_last_reload_success_timestamp_seconds") == at
    metrics.note_reload(at=5.0)
    told.append(metrics.registry.get_sample_value("trimtab_config_last_reload_successful"))
    assert told == [1, 0, 1]
    assert metrics.registry.get_sample_value("trimtab_config_last_reload_success_timestamp_seconds") == 5


def test_a_model_is_named_only_when_vouched_for() -> None:
    metrics = Metrics()
    metrics.vouch_for("known")
    metrics.vouch_for("")

    labels = [
        metrics.label_model(*case) for case in (("known", None), ("unknown", None), ("", None), ("qwen3", "qwen*"))
    ]
    assert labels == ["known", OTHER, OTHER, "qwen*"]


def test_no_client_can_blow_up_the_labels() -> None:
    metrics = Metrics()
    names = [f"model-{number}" for number in range(200)]
    for name in names:
        metrics.vouch_for(name)

    assert [metrics.label_model(name, None) for name in names] == [
        *names[:MAX_MODEL_LABELS],
        *[OTHER] * (len(names) - MAX_MODEL_LABELS),
    ]


def test_decisions_are_counted_by_rule() -> None:
    metrics = Metrics()
    metrics.record_decisions(
        "m",
        [
            Decision("truncate", "", 100, 40, 2, 3),
            Decision("dedupe", "", 100, 95, 2, 3),
            Decision("pairing", "", 100, 108, 1, 3),
            Decision("prune", "", 100, 90, 1, 3),
            Decision("digest", "", 90, 30, 9, 1),
            Decision("summarise", "", 80, 30, 9, 1),
        ],
    )

    saved = {("m", "truncate"): 60, ("m", "dedupe"): 5, ("m", "prune"): 10, ("m", "digest"): 60, ("m", "summarise"): 50}
    assert _samples(metrics, "trimtab_tokens_saved") == saved
    assert _samples(metrics, "trimtab_tokens_added") == {("m", "pairing"): 8}
    assert metrics.registry.get_sample_value("trimtab_repairs_total", {"model": "m"}) == 1
    assert _samples(metrics, "trimtab_cuts") == {("m", "prune"): 1, ("m", "digest"): 1, ("m", "summarise"): 1}


# The page of metrics: how often it is rendered, and how old it may be.


class Rendering:
    """Renders numbered pages; `rendered` are their forms."""

    def __init__(self) -> None:
        self.rendered: list[bool] = []

    def __call__(self, *, as_open_metrics: bool) -> bytes:
        """The next page."""
        self.rendered.append(as_open_metrics)
        return b"%d" % len(self.rendered)


@pytest.fixture
def ticks() -> Iterator[float]:
    """A clock that goes on by half a second whenever it is read."""
    return (0.5 * number for number in count())


async def test_a_page_is_never_older_than_its_request(ticks: Iterator[float], monkeypatch) -> None:
    waited: list[float] = []
    plain = asyncio.sleep
    monkeypatch.setattr("asyncio.sleep", lambda seconds: waited.append(seconds) or plain(0))
    render = Rendering()
    pages = MetricsPages(render, clock=lambda: next(ticks))
    assert [await pages.read() for _ in range(3)] == [b"1", b"2", b"3"]
    assert waited == [float("-inf"), pytest.approx(0.0), pytest.approx(0.0)]
    assert await pages.read(as_open_metrics=True) == b"4"
    assert render.rendered == [False, False, False, True]


async def test_a_failed_rendering_is_no_page(ticks: Iterator[float]) -> None:
    faults = iter([OSError()])

    def render(*, as_open_metrics: bool) -> bytes:
        for fault in faults:
            raise fault
        return b"page"

    pages = MetricsPages(render, clock=lambda: next(ticks))
    with pytest.raises(OSError, match=r"^$"):
        await pages.read()
    assert await pages.read() == b"page"
