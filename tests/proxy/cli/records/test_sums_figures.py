"""Sums of requests by model."""

from typing import Any

from support.recordings import make_figures

from trimtab.proxy.account.recordings.format import RecordedCall
from trimtab.proxy.cli.records.sums import Figures, RequestFigures, add_up
from trimtab.rules.conversation import Decision
from trimtab.rules.tokens.sections import Sections

CUT = make_figures(
    "m", "chat", 200, "compacted", Sections(100, 0, 0, 900, 50), Sections(100, 200, 0, 300, 50), 800,
    (Decision("prune", "", 1050, 850, 3, 2), Decision("digest", "", 850, 600, 3, 2),
     Decision("pin", "", 600, 650, 1, 5)),
    prompt_tokens=640, cached_tokens=128, completion_tokens=7, prefix_kept=0.5,
    cost=2_000_000_000, without_cost=3_000_000_000,
)  # fmt: skip
REFUSED = make_figures("m", "chat", 400, "refused", Sections(900), limit_tokens=800, error="context_length_exceeded")
PASSED = make_figures("other", "models", 200, "passed")


def _sum(*told: RequestFigures) -> Figures:
    figures = Figures()
    for one in told:
        figures.add(one)
    return figures


def _describe(figures: Figures, label: str) -> dict[str, Any]:
    return next(model for model in figures.describe() if model["name"] == label)


def test_the_figures_of_a_model_add_up() -> None:
    """A rule that adds tokens is told apart from those that save; a refused request sends nothing."""
    figures = _sum(CUT, CUT, REFUSED)
    model = _describe(figures, "m")

    assert (model["requests"], model["answered"], model["refused"], model["over_limit"]) == (3, 2, 1, 3)
    assert (model["original_tokens"], model["sent_tokens"]) == (2 * 1050, 2 * 650)
    assert model["saved_tokens"] == {"prune": 400, "digest": 500}
    assert model["added_tokens"] == {"pin": 100}
    assert model["cuts"] == {"prune": 2, "digest": 2}
    assert model["sections"]["sent"] == {"system": 200, "summary": 400, "memory": 0, "recent": 600, "current": 100}
    assert (model["cached_tokens"], model["completion_tokens"]) == (256, {"upstream": 14})
    assert (model["prefix_kept"], model["booked_usd"], model["booked_without_usd"]) == (0.5, 4.0, 6.0)
    assert model["outcomes"] == {"compacted": 2, "refused": 1}


def test_what_is_not_known_is_null() -> None:
    """It is not zero."""
    model = _describe(_sum(PASSED), "other")
    assert (model["prefix_kept"], model["booked_usd"], model["original_tokens"]) == (None, None, 0)


def test_summaries_count_for_their_model() -> None:
    figures = _sum(CUT)
    figures.add_summary(RecordedCall("m", "", "written", 0.0, 900, 60, cost=1_000_000_000))
    figures.add_summary(RecordedCall("m", "", "failed", 0.0, 0, 0))
    model = _describe(figures, "m")
    assert (model["summaries"], model["booked_summaries_usd"]) == (2, 1.0)
    assert model["summary_results"] == {"written": 1, "failed": 1}
    assert model["summary_tokens"] == {"prompt": 900, "completion": 60}


def test_models_with_long_prompts_come_first() -> None:
    assert [model["name"] for model in _sum(PASSED, CUT).describe()] == ["m", "other"]


def test_the_total_is_the_sum_of_all_models() -> None:
    """Shares are not added up, and what no model knows stays unknown."""
    figures = _sum(CUT, PASSED, REFUSED)
    total = add_up(figures.describe())
    assert (total["requests"], total["original_tokens"], total["booked_usd"]) == (3, 1050, 2.0)
    assert total["saved_tokens"] == {"prune": 200, "digest": 250}
    assert total["booked_summaries_usd"] is None
    assert "prefix_kept" not in total
    assert add_up([]) == {}
