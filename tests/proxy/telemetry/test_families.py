"""Families of metrics tell what Prometheus' own library would tell of the same additions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Counter as TheirCounter
from prometheus_client import Histogram as TheirHistogram
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.registry import Collector

from trimtab.proxy.telemetry.families import Counter, Histogram

BUCKETS = (0.5, 1, 2.5)
words = st.text(max_size=3)
amounts = st.one_of(st.integers(0, 2**60), st.floats(0, 1e9))
steps = st.lists(st.tuples(st.sampled_from("cnh"), words, words, amounts), max_size=20)


class Table(Collector):
    """One family of each kind."""

    saved_tokens = Counter("What was saved.", "rule model")
    faults = Counter("Faults.", "phase")
    wait_seconds = Histogram("How long\nit took.", "phase", buckets=BUCKETS)

    def __init__(self) -> None:
        self.families = (Table.saved_tokens.begin(), Table.faults.begin(), Table.wait_seconds.begin())

    def collect(self):
        return [family.read() for family in self.families]


@given(steps)
def test_the_page_is_the_librarys_byte_for_byte(steps) -> None:
    table, ours, theirs = Table(), CollectorRegistry(), CollectorRegistry()
    ours.register(table)
    counter, faults, histogram = table.families
    their_counter = TheirCounter(counter.name, counter.meaning, counter.labels, registry=theirs, unit="tokens")
    their_faults = TheirCounter(faults.name, faults.meaning, faults.labels, registry=theirs)
    their_histogram = TheirHistogram(
        histogram.name, histogram.meaning, histogram.labels, registry=theirs, unit="seconds", buckets=BUCKETS
    )
    for kind, one, other, amount in steps:
        if kind == "c":
            counter[one, other] += amount
            their_counter.labels(one, other).inc(amount)
        elif kind == "n":
            faults[one] += 1
            their_faults.labels(one).inc()
        else:
            histogram.observe(one, amount)
            their_histogram.labels(one).observe(amount)
    for write in (generate_latest, generate_open_metrics):
        lines = [line for line in write(theirs).split(b"\n") if b"_created" not in line]
        assert write(ours).split(b"\n") == lines


def test_what_was_never_counted_has_no_series_but_zero_added_has() -> None:
    family = Table.faults.begin()
    assert family["plan"] == 0
    assert family.read().samples == []
    family["plan"] += 0
    assert [(one.labels, one.value) for one in family.read().samples] == [({"phase": "plan"}, 0)]


@pytest.mark.parametrize(("value", "bucket"), [(0, 0), (0.5, 0), (0.51, 1), (1, 1), (2.5, 2), (2.6, 3), (1e9, 3)])
def test_a_bound_belongs_to_its_bucket(value, bucket) -> None:
    family = Table.wait_seconds.begin()
    family.observe("plan", value)
    assert family["plan"] == [*[0] * bucket, 1, *[0] * (3 - bucket), value]
