"""What an upstream has refused is not added again, for the client and the model of that request."""

from proxy.state.catalogue.refused_additions import MAX_KEPT, RefusedAdditions

ASKED = ("tenant", "https://api.openai.com/v1", "gpt-4o")


def test_refusals_add_up_for_one_client_upstream_and_model() -> None:
    refused = RefusedAdditions()
    refused.keep(ASKED, frozenset({"cache_key"}))
    refused.keep(ASKED, frozenset({"cache_breakpoint"}))
    assert refused.find(ASKED) == {"cache_key", "cache_breakpoint"}
    assert refused.find(("another", *ASKED[1:])) == set()
    assert refused.find((*ASKED[:2], "gpt-5")) == set()


def test_only_the_newest_are_kept() -> None:
    refused = RefusedAdditions()
    for number in range(MAX_KEPT + 1):
        refused.keep(("tenant", "url", str(number)), frozenset({"cache_key"}))
    assert refused.find(("tenant", "url", "0")) == set()
    assert refused.find(("tenant", "url", "1")) == {"cache_key"}
