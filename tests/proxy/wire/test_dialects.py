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
    """Or the meaning of a request would hang on their order."""
    with pytest.raises(ValueError, match="/v1/turns is claimed by turns and by turns"):
        by_path((TURNS, TURNS))


def test_a_dialect_has_a_path_of_its_own_to_ask_at() -> None:
    """Summaries are asked for where the dialect is spoken."""
    for codec in CODECS:
        assert codec.path in codec.paths
