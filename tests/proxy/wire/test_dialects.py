"""The dialects that the proxy speaks."""

import pytest
from support.turns import TURNS

from proxy.wire.dialects import CODECS, DEFAULT, by_path


def test_each_path_has_the_dialect_that_claims_it() -> None:
    """Chat completions are claimed by the two paths that clients use."""
    claimed = by_path((*CODECS, TURNS))
    assert claimed["/v1/turns"] is TURNS
    assert {path for path, codec in claimed.items() if codec is DEFAULT} == {
        "/v1/chat/completions",
        "/chat/completions",
    }


def test_two_dialects_cannot_claim_one_path() -> None:
    """Otherwise the order of dialects would decide how a request is read."""
    with pytest.raises(ValueError, match="/v1/turns is claimed by turns and by turns"):
        by_path((TURNS, TURNS))


def test_a_dialect_has_a_path_of_its_own_to_ask_at() -> None:
    """Summaries are requested at that path. Where tokens are only counted, no summary is written."""
    asked = {codec.name: codec.paths for codec in CODECS if not codec.is_count}
    assert all(codec.path in asked[codec.name] for codec in CODECS)
