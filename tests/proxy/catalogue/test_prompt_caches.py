"""Who gets what for its prompt cache: an example for each row of the table, and those who get nothing."""

import pytest
from support.golden import read_tables

from trimtab.proxy.catalogue.prompt_caches import (
    DAY_SECONDS,
    MAX_KEPT,
    ROWS,
    Lifetimes,
    Refusals,
    find_additions,
    find_lifetime_seconds,
)

ADDED, LASTING = read_tables("prompt_caches")
OPENAI = "https://api.openai.com/v1"


def test_a_host_gets_what_its_provider_documents_and_any_other_nothing() -> None:
    for *given, adds in ADDED["cases"]:
        assert find_additions(*given) == set(adds), given


def test_the_host_the_model_and_the_request_decide_how_long_a_prompt_stays() -> None:
    for *given, seconds in LASTING["cases"]:
        assert find_lifetime_seconds(*given) == seconds, given


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.adds} {row.hosts[0]}")
def test_each_host_and_dialect_of_each_row_has_a_source_and_an_example(row) -> None:
    assert row.source.startswith("https://")
    given = [(url, dialect) for url, dialect, _, adds in ADDED["cases"] if row.adds in adds]
    for host in row.hosts:
        assert any(host in url for url, _ in given)
    for dialect in row.dialects:
        assert any(dialect == each and any(host in url for host in row.hosts) for url, each in given)


# What an upstream has refused is not added again, for the client and the model of that request.

ASKED = ("tenant", "https://api.openai.com/v1", "gpt-4o")


def test_refusals_add_up_for_one_client_upstream_and_model() -> None:
    refused = Refusals[str]()
    refused.keep(ASKED, frozenset({"cache_key"}))
    refused.keep(ASKED, frozenset({"cache_breakpoint"}))
    assert refused.find(ASKED) == {"cache_key", "cache_breakpoint"}
    assert refused.find(("another", *ASKED[1:])) == set()
    assert refused.find((*ASKED[:2], "gpt-5")) == set()


def test_only_the_newest_are_kept() -> None:
    refused = Refusals[str]()
    for number in range(MAX_KEPT + 1):
        refused.keep(("tenant", "url", str(number)), frozenset({"cache_key"}))
    assert refused.find(("tenant", "url", "0")) == set()
    assert refused.find(("tenant", "url", "1")) == {"cache_key"}


def test_what_was_refused_is_tried_again_after_its_time() -> None:
    """The time begins with the first refusal: a later one does not put the trial off."""
    refused = Refusals[str](seconds=100)
    refused.keep(ASKED, frozenset({"temperature"}), now=0)
    refused.keep(ASKED, frozenset({"stream"}), now=60)
    assert refused.find(ASKED, now=99) == {"temperature", "stream"}
    assert refused.find(ASKED, now=100) == set()
    refused.keep(ASKED, frozenset({"stream"}), now=120)
    assert refused.find(ASKED, now=219) == {"stream"}


# What a cache that outlived a silence teaches.


def test_a_cache_that_outlived_a_silence_teaches_its_client_only() -> None:
    """The longest such silence counts, and a cached head alone proves nothing."""
    lifetimes = Lifetimes()
    lifetimes.learn("a", OPENAI, "gpt-4o", 1500.0, 0.9)
    lifetimes.learn("a", OPENAI, "gpt-4o", 900.0, 0.9)
    lifetimes.learn("a", OPENAI, "gpt-4o", 5000.0, 0.2)
    assert lifetimes.find("a", OPENAI, "gpt-4o") == 1500
    assert lifetimes.find("b", OPENAI, "gpt-4o") == 300
    assert lifetimes.find("a", OPENAI, "gpt-4.1") == 300


def test_nothing_is_learned_about_a_server_of_ones_own_or_beyond_a_day() -> None:
    """What its memory holds depends on load."""
    lifetimes = Lifetimes()
    lifetimes.learn("a", "http://127.0.0.1:8000/v1", "m", 900.0, 1.0)
    lifetimes.learn("a", OPENAI, "gpt-4o", 1e9, 1.0)
    assert lifetimes.find("a", "http://127.0.0.1:8000/v1", "m") is None
    assert lifetimes.find("a", OPENAI, "gpt-4o") == DAY_SECONDS


def test_a_short_silence_needs_no_look_up() -> None:
    """No cache in the table ends sooner."""
    assert not Lifetimes().may_be_over(300.0)
    assert Lifetimes().may_be_over(300.5)
