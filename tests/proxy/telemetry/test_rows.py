"""A row becomes one collector of each object that has it."""

from prometheus_client import CollectorRegistry, Counter

from proxy.telemetry.rows import Registry, Row, read_version


class Table:
    saved_tokens = Row(Counter, "Saved.", "rule")

    def __init__(self) -> None:
        self.registry: CollectorRegistry = Registry()


def test_each_object_has_its_own_collector_and_always_the_same() -> None:
    first, second = Table(), Table()
    first.saved_tokens.labels("prune").inc(3)
    assert first.saved_tokens is first.saved_tokens
    assert first.registry.get_sample_value("trimtab_saved_tokens_total", {"rule": "prune"}) == 3
    assert second.saved_tokens is not first.saved_tokens
    assert second.registry.get_sample_value("trimtab_saved_tokens_total", {"rule": "prune"}) is None


def test_the_unit_is_that_with_which_the_name_ends() -> None:
    table = Table()
    _ = table.saved_tokens
    (family,) = table.registry.collect()
    assert family.unit == "tokens"


def test_the_version_is_that_of_the_installed_package() -> None:
    assert read_version()[0].isdigit()
