"""The keys for sections and memory, and the values that the rules get from them."""

import pytest

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.rules.policy import MEMORY_TAGS, Policy, Prices, SectionShares


def _policy(text: str) -> Policy:
    return load_config(f"defaults: {text}", environment={}).defaults.to_policy(Prices())


def test_shares_that_are_not_set_have_their_defaults() -> None:
    """Without the key, sections have no limits."""
    assert _policy("{}").sections is None
    assert _policy("{sections: {}}").sections == SectionShares()
    assert _policy("{sections: {recent: 0.3, memory: 0}}").sections == SectionShares(memory=0, recent=0.3)


def test_shares_that_are_more_than_the_whole_are_refused() -> None:
    """The message says the sum."""
    with pytest.raises(ConfigError, match=r"at most 1 together, and are 1\.25"):
        _policy("{sections: {recent: 0.8}}")


def test_memory_has_the_tags_that_are_configured() -> None:
    """No tag: no text is memory."""
    assert _policy("{}").memory_tags == MEMORY_TAGS
    assert _policy("{memory: {tags: [a, b-c]}}").memory_tags == ("a", "b-c")
    assert _policy("{memory: {tags: []}}").memory_tags == ()


@pytest.mark.parametrize("tag", ["<a>", "a b", "", "1a"])
def test_a_tag_is_the_name_of_an_xml_element(tag: str) -> None:
    """Brackets do not belong to it."""
    with pytest.raises(ConfigError, match=r"memory\.tags"):
        _policy(f'{{memory: {{tags: ["{tag}"]}}}}')
