"""Every collector."""

import asyncio
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from importlib.metadata import version
from itertools import count
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics import parser as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from trimtab.proxy.telemetry.families import Counter, Histogram
from trimtab.proxy.telemetry.metrics import MAX_MODEL_LABELS, OTHER, Metrics, MetricsPages
from trimtab.rules.conversation import Decision

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "metrics.md"
DESIGN = ROOT.parent / "shared" / "design.md"
PROMTOOL = shutil.which("promtool")
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


def _read_design() -> Contract:
    """The names in the design's section on metrics. A label may be followed by its values, which contain no comma."""
    section = re.split(r"^## ", DESIGN.read_text(), flags=re.MULTILINE)
    (text,) = [part for part in section if part.startswith("10. Metrics")]
    found = re.findall(r"`(trimtab_\w+)(?:\{([^}]*)\})?`", text)
    return {name: frozenset(re.findall(r"(\w+)(?:=\"[^\"]*\")?(?:,|$)", labels)) for name, labels in found}


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
    """It has no other metric. Dashboards and alerts depend on it."""
    assert _read_page() == _read_code()


@pytest.mark.skipif(not DESIGN.is_file(), reason="the design (../shared/design.md) is not here")
def test_the_metrics_of_the_design_are_there() -> None:
    """They have the names and labels that the design gives them. Later metrics were added."""
    design, code = _read_design(), _read_code()

    assert design
    assert {name: code.get(name) for name in design} == design


def test_nothing_else_is_shown_but_the_process() -> None:
    """That is memory, processor time, open files and collections, as every Python program shows them."""
    names = {family.name for family in text_string_to_metric_families(_fill(Metrics()).decode())}
    others = {name for name in names if not name.startswith("trimtab_")}

    assert {"python_info", "python_gc_collections"} <= others
    if Path("/proc/self/stat").exists():  # other systems do not report these
        assert {"process_resident_memory_bytes", "process_cpu_seconds", "process_open_fds"} <= others
    assert all(name.startswith(LIBRARY_PREFIXES) for name in others)


def test_the_build_is_told() -> None:
    """The metric has the version of trimtab and of Python."""
    labels = {"version": version("trimtab"), "python": platform.python_version()}

    assert Metrics().registry.get_sample_value("trimtab_build_info", labels) == 1


def test_there_are_no_series_of_creation_times() -> None:
    """They would be a third of all series, and Prometheus does not use them here."""
    metrics = Metrics()
    text = _fill(metrics).decode()

    assert "_created" not in text
    assert "_created" not in generate_latest(metrics.registry).decode()
    assert 'trimtab_cuts_total{kind="kind",model="model"} 1.0' in text


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: the package prometheus has it)")
def test_prometheus_own_check_finds_nothing_but_the_word_summary() -> None:
    """That word is not meant as the type of a metric, so it stays."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=_fill(Metrics()), capture_output=True, check=False)
    found = done.stderr.decode().splitlines()

    assert [line for line in found if "should not include type 'summary'" not in line] == []
    assert done.stdout == b""


def test_every_help_text_names_its_unit() -> None:
    """A counter without a unit in its name counts what its help text begins with."""
    units = {"seconds": "seconds", "ratio": "ratio", "usd": "us dollars", "tokens": "tokens", "second": "per second"}
    told = {one.name: one.meaning.lower() for one in _families(Metrics())}
    missing = [
        name
        for name, text in told.items()
        for end, unit in units.items()
        if name.endswith(f"_{end}") and unit not in text
    ]

    assert missing == []
    assert all("tokens" in text for name, text in told.items() if "tokens" in name)


def test_both_forms_tell_the_same() -> None:
    """OpenMetrics names the units, too. Its parser is strict about names, types, units, order and the end."""
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
    assert {family.name: family.unit for family in families if family.unit}.items() >= {
        ("trimtab_prompt_tokens", "tokens"),
        ("trimtab_cost_usd", "usd"),
        ("trimtab_overhead_seconds", "seconds"),
        ("trimtab_prefix_kept_ratio", "ratio"),
        ("trimtab_config_last_reload_success_timestamp_seconds", "seconds"),
    }


def test_the_last_reload_is_told_from_the_start() -> None:
    """The start counts as the first success. A failure keeps the time of the last success."""
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


def test_two_proxies_do_not_share_their_figures() -> None:
    """Each has a registry of its own."""
    first, second = Metrics(), Metrics()
    first.fail_open["plan"] += 1

    assert (_samples(first, "trimtab_fail_open"), _samples(second, "trimtab_fail_open")) == ({("plan",): 1.0}, {})


def test_a_model_is_named_only_when_vouched_for() -> None:
    """The glob that it matches comes first. A name that no upstream has answered for is `other`."""
    metrics = Metrics()
    metrics.vouch_for("known")
    metrics.vouch_for("")

    labels = [
        metrics.label_model(*case) for case in (("known", None), ("unknown", None), ("", None), ("qwen3", "qwen*"))
    ]
    assert labels == ["known", OTHER, OTHER, "qwen*"]


def test_no_client_can_blow_up_the_labels() -> None:
    """After fifty names, all further names are `other`. The fifty keep their labels."""
    metrics = Metrics()
    names = [f"model-{number}" for number in range(200)]
    for name in names:
        metrics.vouch_for(name)

    assert [metrics.label_model(name, None) for name in names] == [
        *names[:MAX_MODEL_LABELS],
        *[OTHER] * (len(names) - MAX_MODEL_LABELS),
    ]


def test_decisions_are_counted_by_rule() -> None:
    """Saved and added tokens are counted separately, each unchanged. Only cuts count as cuts."""
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


async def test_many_readers_share_a_page(ticks: Iterator[float]) -> None:
    """Those that come while one is rendered get the next one, all the same."""
    render = Rendering()
    pages = MetricsPages(render, clock=lambda: next(ticks))
    bodies = await asyncio.gather(*(pages.read() for _ in range(50)))
    assert len(render.rendered) <= 2
    assert set(bodies) <= {b"1", b"2"}


async def test_a_page_is_never_older_than_its_request(ticks: Iterator[float], monkeypatch) -> None:
    """Readers one after another get a page each, at most one in a second. Both forms are rendered once."""
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
    """The next reader gets another one."""
    faults = iter([OSError()])

    def render(*, as_open_metrics: bool) -> bytes:
        for fault in faults:
            raise fault
        return b"page"

    pages = MetricsPages(render, clock=lambda: next(ticks))
    with pytest.raises(OSError, match=r"^$"):
        await pages.read()
    assert await pages.read() == b"page"
