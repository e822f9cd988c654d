"""How a store fails: in words that give nothing away."""

import errno

import pytest

from proxy.state.stores.store import StoreError, describe_fault


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError("redis://user:secret@host"), "it does not answer in time"),
        (OSError(errno.ENOSPC, "secret", "/home/user/secret"), "no space left on device"),
        (ValueError("secret"), "its answer cannot be read"),
        (OSError("secret"), "its answer cannot be read"),
    ],
)
def test_a_fault_is_named_in_the_systems_words_or_ours(error: Exception, words: str) -> None:
    """Never in a library's, which may hold a password or a path."""
    assert describe_fault(error) == words
    fault = StoreError("redis", describe_fault(error))
    assert (str(fault), fault.fault) == (f"the redis store failed: {words}", words)
