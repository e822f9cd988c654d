"""What an upstream has refused is not added again, for the client and the model of that request."""

from trimtab.proxy.catalogue.prompt_caches import MAX_KEPT, Refusals

ASKED = ("tenant", "https://api.openai.com/v1", "gpt-4o")


def test_refusals_add_up_for_one_client_upstream_and_model() -> None:
    refused = Refusals[str]()
    refused.keep(ASKED, frozenset({"cache_key"}))
    refused.keep(ASKED, frozenset({"cache_breakpoint"}))
    assert refused.find(ASKED) == {"cache_key", "cache_breakpoint"}
    assert refused.find(("another", *ASKED[1:])) == set()
    assert refused.find((*ASKED[:2], "gpt-5")) == set()


def test_only_the_newest_are_kept() -> None:
    refused = Refusals[str]()
    for number in range(MAX_KEPT + 1):
        refused.keep(("tenant", "url", str(number)), frozenset({"cache_key"}))
    assert refused.find(("tenant", "url", "0")) == set()
    assert refused.find(("tenant", "url", "1")) == {"cache_key"}


def test_what_was_refused_is_tried_again_after_its_time() -> None:
    """The time begins with the first refusal: a later one does not put the trial off."""
    refused = Refusals[str](seconds=100)
    refused.keep(ASKED, frozenset({"temperature"}), now=0)
    refused.keep(ASKED, frozenset({"stream"}), now=60)
    assert refused.find(ASKED, now=99) == {"temperature", "stream"}
    assert refused.find(ASKED, now=100) == set()
    refused.keep(ASKED, frozenset({"stream"}), now=120)
    assert refused.find(ASKED, now=219) == {"stream"}
