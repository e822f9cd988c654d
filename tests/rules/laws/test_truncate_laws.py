"""Truncation by tokens, by bytes or by both: a text is cut once, and every marker tells the truth about it."""

from dataclasses import replace
from functools import cache
from itertools import islice, product
from pathlib import Path

import orjson
import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from support.builders import conversation, count, result
from support.markers import check_markers
from support.results import truncate_tool_results
from support.sessions import DATA, needs_data

from trimtab.proxy.compaction.tokenizers.exact import count_pieces
from trimtab.rules.conversation import CountTokens
from trimtab.rules.policy import Budget, Policy, Truncation
from trimtab.rules.results.calls import says_failure
from trimtab.rules.results.work import Work
from trimtab.rules.text.head_tail import measure_bytes

TRUNCATIONS = pytest.mark.parametrize("truncation", Truncation)
LINES = [
    "a", "", "error: no such file", "word " * 9, "\u6f22\u5b57" * 12, "1,2,3", "    at f()", "| cell" + " " * 90 + "|",
    "-" * 70, "caf\u00e9 \U0001f600", "build step {} of many", "test_{} PASSED", "{}: a line that has its number",
]  # fmt: skip
BUDGETS = st.builds(Budget, st.integers(64, 500), st.none() | st.integers(256, 4000))
TEXTS = st.builds(
    lambda some, times, end: "\n".join(line.format(rank) for rank in range(times) for line in some) + end,
    st.lists(st.sampled_from(LINES), min_size=1, max_size=12),
    st.integers(1, 60),
    st.sampled_from(["", "\n", "\nexit code 1\n"]),
)
MAX_CHARS = 60_000
"""Characters that are read of a recorded output, and twice as many of JSON, which is read otherwise above 100,000. All
of the longest would take longer than all other tests here."""
RECORDED = sorted(
    path for path in (DATA / "tool_outputs").glob("*.*") if path.suffix in {".txt", ".log", ".json", ".diff"}
)


def truncate(
    *texts: str, budget: Budget, truncation: Truncation, tidied: bool = False, counted: CountTokens = count
) -> tuple[str, ...]:
    """The forwarded form of a result of these texts. `tidied`: lines were removed from them before."""
    before = conversation(replace(result("1", *texts), edited=tidied))
    policy = Policy(result_budget=budget, truncation=truncation)
    return truncate_tool_results(before, policy=policy, work=Work(counted)).conversation.messages[0].texts


def check(short: tuple[str, ...], texts: tuple[str, ...], budget: Budget, counted: CountTokens = count) -> int:
    """Both budgets are kept, and every marker is true. Returns the number of markers."""
    budget = budget.for_error() if any(map(says_failure, texts)) else budget
    assert sum(map(counted, short)) <= budget.max_tokens
    assert budget.max_bytes is None or sum(map(measure_bytes, short)) <= budget.max_bytes
    whole = texts if len(short) == len(texts) else ("\n".join(texts),)
    return sum(check_markers(one, text, counted) for one, text in zip(short, whole, strict=True))


@TRUNCATIONS
@given(texts=st.lists(TEXTS, min_size=1, max_size=3).map(tuple), budget=BUDGETS, tidied=st.booleans())
def test_every_marker_counts_the_text_that_the_tool_gave(
    truncation: Truncation,
    texts: tuple[str, ...],
    budget: Budget,
    tidied: bool,  # noqa: FBT001 - a parameter of hypothesis
) -> None:
    """The shown and the missing parts make up the whole text, in order, whichever budget is tighter."""
    short = truncate(*texts, budget=budget, truncation=truncation, tidied=tidied)
    if short != texts:
        check(short, texts, budget)
        again = truncate(*short, budget=budget, truncation=truncation, tidied=True)
        assert again == short


@pytest.mark.parametrize("budget", [Budget(4000, 1500), Budget(300, 90_000)])
def test_json_says_how_many_of_its_records_are_missing(budget: Budget) -> None:
    records = [{"id": number, "state": "ok", "note": f"nothing new in {number}"} for number in range(900)]
    text = orjson.dumps(records).decode()
    (short,) = truncate(text, budget=budget, truncation=Truncation.SALIENT)
    assert check((short,), (text,), budget) == 1
    assert f"of {len(records)} items, others may be incomplete" in short


@needs_data
@pytest.mark.parametrize(("number", "path"), list(enumerate(RECORDED)), ids=lambda value: getattr(value, "name", ""))
def test_markers_of_recorded_outputs_are_true(encoding: tiktoken.Encoding, number: int, path: Path) -> None:
    """These are outputs of all kinds of tools, counted by a real vocabulary; each in a third of the ways."""
    counted = cache(count_pieces(encoding))
    text = path.read_bytes().decode("utf-8", "replace")[: MAX_CHARS * (1 + (path.suffix == ".json"))]
    budgets = (Budget(4000, 20_000), Budget(1000, 3000), Budget(4000, 1000))
    for budget, truncation in islice(product(budgets, Truncation), number % 3, None, 3):
        (short,) = truncate(text, budget=budget, truncation=truncation, counted=counted)
        check((short,), (text,), budget, counted)
