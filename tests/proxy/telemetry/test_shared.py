"""Metrics of several processes at one address."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from trimtab.proxy.telemetry.families import Numbers
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.proxy.telemetry.shared import FOLDER_PREFIX, MEMORY_FOLDER, SharedMetrics

WORKERS = 3

steps = st.lists(st.tuples(st.integers(1, WORKERS), st.sampled_from(["count", "time", "begin", "die"])), max_size=40)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedMetrics]:
    """The shared metrics of three workers."""
    made = SharedMetrics.open(WORKERS, (tmp_path,))
    yield made
    made.close()


def make_worker(shared: SharedMetrics, number: int) -> Metrics:
    """The metrics of a worker that begins."""
    shared.roster.write(number, os.getpid(), 0)
    return Metrics(shared, number)


def read(metrics: Metrics) -> dict[str, float]:
    """One worker's metrics page: each sample by its name, or by its name and its worker."""
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        f"{sample.name}{sample.labels.get('worker', '')}{sample.labels.get('le', '')}": sample.value
        for family in families
        for sample in family.samples
    }


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_every_worker_tells_what_all_have_counted(steps, tmp_path_factory) -> None:
    shared = SharedMetrics.open(WORKERS, (tmp_path_factory.mktemp("metrics"),))
    living = {number: make_worker(shared, number) for number in range(1, WORKERS + 1)}
    counted, observed, begun = 0, 0, dict.fromkeys(living, 0)
    for number, step in steps:
        metrics = living[number]
        if step == "count":
            metrics.requests["m", "chat", "200", "unchanged"] += 1
            counted += 1
        elif step == "time":
            metrics.overhead.observe("plan", 0.003)
            observed += 1
        elif step == "begin":
            begun[number] += 1
            metrics.show_in_flight(begun[number])
        else:
            shared.roster.write(number, 0, 1)
            assert read(metrics)["trimtab_requests_in_flight"] == sum(begun.values()) - begun[number]
            living[number], begun[number] = make_worker(shared, number), 0
    for metrics in living.values():
        page = read(metrics)
        assert page.get("trimtab_requests_total", 0) == counted
        assert page.get("trimtab_overhead_seconds_count", 0) == observed
        assert page.get("trimtab_overhead_seconds_bucket0.004", 0) == observed
        assert page.get("trimtab_overhead_seconds_bucket0.002", 0) == 0
        assert page["trimtab_requests_in_flight"] == sum(begun.values())
    shared.close()


def test_each_process_is_told_apart(shared: SharedMetrics) -> None:
    worker = make_worker(shared, 1)
    shared.roster.write(1, os.getpid(), 2)
    page = read(worker)
    assert [page[f"trimtab_worker_up{number}"] for number in (1, 2, 3)] == [1, 0, 0]
    assert page["trimtab_worker_restarts_total1"] == 2
    assert page["process_resident_memory_bytes1"] > 0
    assert page["process_resident_memory_bytessupervisor"] > 0
    assert "process_resident_memory_bytes2" not in page
    assert "process_resident_memory_bytes" not in page
    assert not [name for name in page if name.startswith("python_gc")]
    assert page["trimtab_build_info"] == 1


def test_open_metrics_of_all_workers_are_valid(shared: SharedMetrics) -> None:
    """Its own parser accepts the page, and the sums are those of the other form."""
    first, second = make_worker(shared, 1), make_worker(shared, 2)
    for number, metrics in enumerate((first, second), 1):
        metrics.requests["m", "chat", "200", "unchanged"] += number
        metrics.cost_usd["m", "fresh"] += 0.5
        metrics.overhead.observe("plan", 0.003)
        metrics.show_in_flight(number)
    text = second.render(as_open_metrics=True).decode()
    families = {family.name: family for family in open_metrics.text_string_to_metric_families(text)}
    sums = {sample.name: sample.value for family in families.values() for sample in family.samples}

    assert text.endswith("# EOF\n")
    assert sums["trimtab_requests_total"] == sums["trimtab_requests_in_flight"] == 3
    assert sums["trimtab_overhead_seconds_count"] == 2
    assert families["trimtab_cost_usd"].unit == "usd"
    assert read(second).items() >= {"trimtab_cost_usd_total": 1, "trimtab_requests_in_flight": 3}.items()


def test_half_a_line_of_a_worker_that_was_killed_costs_no_other(shared: SharedMetrics) -> None:
    make_worker(shared, 1).cuts["m", "prune"] += 1
    with (shared.path / "1.names").open("ab") as file:
        file.write(b'["trimtab_cuts",["m","dig')
    after = make_worker(shared, 1)
    after.repairs["m"] += 2
    page = read(make_worker(shared, 2))
    assert (page["trimtab_cuts_total"], page["trimtab_repairs_total"]) == (1, 2)


def test_without_space_a_worker_counts_for_itself(shared: SharedMetrics, monkeypatch) -> None:
    """No request fails because of it."""
    metrics = make_worker(shared, 1)

    def fail(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(Numbers, "_map", fail)
    metrics.repairs["m"] += 1
    metrics.overhead.observe("plan", 0.003)
    monkeypatch.undo()
    metrics.cuts["m", "prune"] += 1
    assert metrics.repairs["m"] == 1
    assert read(metrics)["trimtab_cuts_total"] == 1


@pytest.mark.skipif(not MEMORY_FOLDER.exists(), reason="the system has no such folder")
def test_the_space_for_numbers_is_taken_before_they_are_written() -> None:
    """A process that writes to a hole of a file is killed if the memory is full."""
    shared = SharedMetrics.open(1)
    make_worker(shared, 1).repairs["m"] += 1
    found = (shared.path / "1.values").stat()
    shared.close()
    assert found.st_blocks * 512 >= found.st_size > 0


def test_numbers_beyond_a_block_are_told_and_found_again(shared: SharedMetrics) -> None:
    numbers = shared.open_numbers(1)
    written = {}
    for number in range(1, 6):
        cells = numbers.open("kind", (str(number),), 3000)
        cells[0] = cells[-1] = number
        written[str(number),] = (number, number, 3000)
    told = {labels: (cells[0], cells[-1], len(cells)) for _, labels, cells in shared.read_numbers(1)}
    again = shared.open_numbers(1).find("kind")
    assert told == {labels: (cells[0], cells[-1], len(cells)) for labels, cells in again.items()} == written


def test_all_workers_tell_the_same_of_the_last_reload(shared: SharedMetrics) -> None:
    first = make_worker(shared, 1)
    at = read(first)["trimtab_config_last_reload_success_timestamp_seconds"]
    shared.reloads.write(None)
    later = make_worker(shared, 2)

    assert [read(one)["trimtab_config_last_reload_successful"] for one in (first, later)] == [0, 0]
    assert read(later)["trimtab_config_last_reload_success_timestamp_seconds"] == at
    later.note_reload(at=7.0)
    assert [read(one)["trimtab_config_last_reload_successful"] for one in (first, later)] == [1, 1]
    assert read(first)["trimtab_config_last_reload_success_timestamp_seconds"] == 7


def test_a_folder_is_the_owners_alone_and_goes_in_the_end(tmp_path: Path) -> None:
    """Nobody else can read the counts."""
    shared = SharedMetrics.open(1, (tmp_path,))
    assert shared.path.stat().st_mode & 0o777 == 0o700
    shared.close()
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_was_killed_leaves_nothing_behind_for_long(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from trimtab.proxy.telemetry.shared import SharedMetrics;"
        "SharedMetrics.open(1, (Path(sys.argv[1]),)); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    (left,) = tmp_path.glob(f"{FOLDER_PREFIX}*")
    first = SharedMetrics.open(1, (tmp_path,))
    second = SharedMetrics.open(1, (tmp_path,))
    assert not left.exists()
    assert first.path.exists()
    second.close()
    first.close()


def test_where_memory_cannot_be_written_temporary_files_stand_in(tmp_path: Path, monkeypatch) -> None:
    """Some systems have no such folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shared = SharedMetrics.open(1, (Path("/nowhere"),))
    assert shared.path.parent == tmp_path
    shared.close()
