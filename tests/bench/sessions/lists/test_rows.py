"""The figures of a row."""

import pytest

from bench.sessions.ledger import Call, Prices
from bench.sessions.lists.rows import Done, make_group, split_by_size

PRICES = Prices(1e6, 1e5, 4e6, 1e6)


def call(prompt_tokens: int, cached_tokens: int = 0, lost_tokens: int = 0) -> Call:
    """A turn."""
    return Call(is_summary=False, prompt_tokens=prompt_tokens, cached_tokens=cached_tokens, lost_tokens=lost_tokens)


def test_the_cost_is_the_ratio_of_sums_and_the_mean_that_of_ratios() -> None:
    done = [
        Done("large", [call(100)], [call(400)]),
        Done("small", [call(11)], [call(10)]),
    ]
    group = make_group(done, PRICES)
    assert group.cost == pytest.approx(111 / 410)
    assert group.mean == pytest.approx((0.25 + 1.1) / 2)
    assert (group.worst, group.worst_session) == (pytest.approx(1.1), "small")
    assert group.dearer_sessions == 1
    assert group.dollars == pytest.approx(111.0)


def test_read_is_the_share_of_the_prompt_tokens_and_lost_is_in_dollars() -> None:
    group = make_group([Done("one", [call(100, 25, 50), call(100, 75)], [call(200)])], PRICES)
    assert group.read == pytest.approx(0.5)
    assert group.lost_dollars == pytest.approx(50 * 0.9)


def test_without_sessions_there_are_no_figures() -> None:
    assert make_group([], PRICES).cost is None


def test_a_session_is_larger_if_a_prompt_was_without_the_contestant() -> None:
    done = [Done("large", [call(10)], [call(101)]), Done("small", [call(10)], [call(100)])]
    larger, fitting = split_by_size(done, 100)
    assert [one.session_id for one in larger] == ["large"]
    assert [one.session_id for one in fitting] == ["small"]
