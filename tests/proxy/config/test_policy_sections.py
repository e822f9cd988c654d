"""The keys for sections and memory, and the values that the rules get from them."""

from trimtab.proxy.config.load import load_config
from trimtab.rules.policy import MEMORY_TAGS, Policy, Prices, SectionShares


def _policy(text: str) -> Policy:
    return load_config(f"defaults: {text}", environment={}).defaults.to_policy(Prices())


def test_shares_that_are_not_set_have_their_defaults() -> None:
    """Without the key, sections have no limits."""
    assert _policy("{}").sections is None
    assert _policy("{sections: {}}").sections == SectionShares()
    assert _policy("{sections: {recent: 0.3, memory: 0}}").sections == SectionShares(memory=0, recent=0.3)


def test_memory_has_the_tags_that_are_configured() -> None:
    """No tag: no text is memory."""
    assert _policy("{}").memory_tags == MEMORY_TAGS
    assert _policy("{memory: {tags: [a, b-c]}}").memory_tags == ("a", "b-c")
    assert _policy("{memory: {tags: []}}").memory_tags == ()
