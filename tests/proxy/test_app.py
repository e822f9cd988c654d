"""Wiring: ways of counting, addresses."""

import pytest
from conftest import ListLog

import proxy.app
from proxy.app import Compactors, site_url, split_address
from proxy.config import PolicyConfig
from proxy.counter import VocabularyError, count_by_heuristic


def test_missing_vocabulary_is_said_once_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the vocabulary everything is counted by characters, and one warning says so."""

    def fail() -> None:
        message = "no such file"
        raise VocabularyError(message)

    monkeypatch.setattr(proxy.app, "load_o200k", fail)
    log = ListLog()
    compactors = Compactors(log)

    assert compactors.choose(PolicyConfig(count="auto")).count is count_by_heuristic
    assert [line["event"] for line in log.lines] == ["vocabulary_missing"]


def test_policy_chooses_how_tokens_are_counted(compactors: Compactors) -> None:
    """`heuristic` counts by characters; `auto` and `o200k_base` share one counter."""
    exact = compactors.choose(PolicyConfig(count="auto"))

    assert compactors.choose(PolicyConfig(count="o200k_base")) is exact
    assert compactors.choose(PolicyConfig(count="heuristic")).count is count_by_heuristic
    assert exact.count is not count_by_heuristic


@pytest.mark.parametrize(
    ("address", "parts", "url"),
    [
        ("127.0.0.1:8790", ("127.0.0.1", 8790), "http://127.0.0.1:8790"),
        ("[::1]:80", ("::1", 80), "http://[::1]:80"),
        ("localhost:0", ("localhost", 0), "http://localhost:0"),
    ],
)
def test_addresses_are_read_and_written(address: str, parts: tuple[str, int], url: str) -> None:
    """HOST:PORT, with an IPv6 host in brackets."""
    assert split_address(address) == parts
    assert site_url(*parts) == url
