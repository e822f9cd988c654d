"""Every collector."""

import asyncio
import re
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from trimtab.proxy.telemetry.families import Counter, Histogram
from trimtab.proxy.telemetry.metrics import MAX_LABEL_CHARS, MAX_MODEL_LABELS, OTHER, Metrics, MetricsPages
from trimtab.rules.conversation import Decision

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "metrics.md"

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


def test_the_last_reload_is_told_from_the_start() -> None:
    """The start counts as the first success. A failure keeps the time of the last success."""
    before, metrics, told = time.time(), Metrics(), list[tuple[float | None, ...]]()
    names = ("successful", "success_timestamp_seconds")
    for note in ((), (None,), (5.0,)):
        for at in note:
            metrics.note_reload(at=at)
        value = metrics.registry.get_sample_value
        told.append(tuple(value(f"trimtab_config_last_reload_{name}") for name in names))
    (_, begun), *_ = told
    assert before <= begun <= time.time()
    assert told == [(1, begun), (0, begun), (1, 5)]


def test_a_model_is_named_only_when_vouched_for() -> None:
    """The glob that it matches comes first; then the first fifty short names that an upstream has answered for."""
    metrics = Metrics()
    names = ["known", *(f"model-{number}" for number in range(200))]
    for name in ("", long := "x" * (MAX_LABEL_CHARS + 1), *names):
        metrics.vouch_for(name)

    labels = [metrics.label_model(*case) for case in (("unknown", None), ("", None), (long, None), ("qwen3", "qwen*"))]
    assert labels == [*[OTHER] * 3, "qwen*"]
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
