"""Policies over policies."""

from proxy.config.policies.overlay import Same, overlay
from proxy.config.policies.policy import PolicyConfig


def test_a_key_stands_for_one_object() -> None:
    """Equal objects have different keys, and a key does not equal its object."""
    one, other = [1], [1]
    cache = {Same(one): "one", Same(other): "other"}

    assert (cache[Same(one)], cache[Same(other)], Same([1]) in cache, Same(one) == one) == (
        "one",
        "other",
        False,
        False,
    )


def test_what_is_written_counts_although_it_is_the_default() -> None:
    """The same two policies give the same object."""
    under = PolicyConfig(high_water=0.9, dedupe=False)
    over = PolicyConfig(dedupe=True)
    joined = overlay(under, over)
    assert (joined.high_water, joined.dedupe) == (0.9, True)
    assert overlay(under, over) is joined
