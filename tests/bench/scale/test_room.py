"""Memory per thousand streams or sessions."""

from bench.scale.room import Held


def test_what_some_take_is_told_for_a_thousand() -> None:
    assert Held("trimtab", "open streams", 200, 5.0).per_thousand_mb == 25
