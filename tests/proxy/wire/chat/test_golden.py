"""Our counts, compared with what the API itself has reported for the same requests.

Most were recorded by others in the test suites of their projects. Some of them may name a wrong model.
"""

from statistics import mean
from typing import Any, NamedTuple

import orjson
import pytest
from support.sessions import DATA, read_rows

from trimtab.proxy.compaction import pool
from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_pieces, make_counter
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Counting
from trimtab.rules.conversation import CountTokens
from trimtab.rules.tokens.families import CL100K, O200K, find_family

GOLDEN = DATA / "golden_prompt_tokens.jsonl"
MEDIA = frozenset({"image_url", "file", "input_audio", "websearch"})
"""Parts that are guessed, and a search whose results are in the prompt."""

pytestmark = pytest.mark.skipif(not GOLDEN.is_file(), reason="the recorded data (../shared/data) is not here")


class Counted(NamedTuple):
    reported: int
    tokens: int


@pytest.fixture(scope="module")
def counts() -> dict[str, CountTokens]:
    return {name: make_counter(count_pieces(pool.load_encoding(name))) for name in (O200K, CL100K)}


@pytest.fixture(scope="module")
def groups(counts: dict[str, CountTokens]) -> dict[str, list[Counted]]:
    grouped: dict[str, list[Counted]] = {}
    for row in read_rows(GOLDEN):
        grouped.setdefault(_group(row), []).append(_count(row, counts))
    return grouped


def _group(row: dict[str, Any]) -> str:
    features = set(row["features"])
    kind = "reasoning " if find_family(row["model"]).costs.is_reasoning else ""
    if features & MEDIA:
        return "media"
    if "json_schema" in features:
        return kind + "format"
    if features & {"functions", "function_call"}:
        return kind + "legacy"
    if "tools" in features and "tool_calls" not in features:
        return kind + "tools"
    return kind + ("calls" if "tool_calls" in features else "plain")


def _count(row: dict[str, Any], counts: dict[str, CountTokens]) -> Counted:
    family = find_family(row["model"])
    counting = Counting(counts[family.vocabulary], make_known(), family.costs)
    tokens = CHAT.decode(CHAT.read(orjson.dumps(row["request"])), counting).tokens
    return Counted(row["prompt_tokens"], tokens)


def test_messages_alone_are_counted_exactly_and_nothing_as_much_less_than_it_costs(
    groups: dict[str, list[Counted]],
) -> None:
    """99 of 100 requests to models that do not reason are counted to the token. The cost of media is guessed."""
    plain = groups["plain"]
    assert len(plain) > 300
    assert mean(row.tokens == row.reported for row in plain) >= 0.99
    rows = [row for name, group in groups.items() for row in group if name != "media"]
    assert len(rows) > 650
    assert all(row.tokens >= 0.9 * row.reported for row in rows)
    assert all(row.tokens >= 0.3 * row.reported for row in groups["media"])


@pytest.mark.parametrize(
    ("group", "least", "largest_mean", "largest_p95"),
    [
        ("plain", 300, 0.001, 0.0),
        ("tools", 100, 0.012, 0.07),
        ("calls", 80, 0.015, 0.07),
        ("format", 60, 0.06, 0.2),
        ("reasoning plain", 5, 0.015, 0.02),
        ("reasoning tools", 10, 0.03, 0.1),
        ("reasoning calls", 5, 0.03, 0.1),
    ],
)
def test_counts_are_near_what_the_api_reports(
    groups: dict[str, list[Counted]], group: str, least: int, largest_mean: float, largest_p95: float
) -> None:
    """Each kind of request has a bound for the error of the mean, and for the error of 19 in 20 requests."""
    errors = sorted(abs(row.tokens - row.reported) / row.reported for row in groups[group])
    assert len(errors) >= least
    assert mean(errors) <= largest_mean
    assert errors[int(0.95 * (len(errors) - 1))] <= largest_p95
