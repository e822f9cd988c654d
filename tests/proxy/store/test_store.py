"""How a store's failure is described: by the store's name and the kind of fault, never in a library's words."""

import errno
import sqlite3

import pytest

from trimtab.proxy.store.store import StoreError, describe_fault


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (TimeoutError("PLANTED"), "it does not answer in time"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "PLANTED", "/PLANTED"), "connection refused"),
        (OSError(errno.ENOSPC, "PLANTED"), "no space left on device"),
        (OSError("PLANTED"), "its answer cannot be read"),
        (sqlite3.DatabaseError("PLANTED"), "its answer cannot be read"),
        (ValueError("redis://:PLANTED@host"), "its answer cannot be read"),
    ],
)
def test_a_fault_is_told_in_the_systems_words_or_ours(error: Exception, fault: str) -> None:
    """An error's own text may contain a password, an address or the name of a file."""
    assert describe_fault(error) == fault
    told = StoreError("redis", fault)
    assert (str(told), told.fault) == (f"the redis store failed: {fault}", fault)
