"""For the tests of the command line."""

import pytest
import tiktoken


@pytest.fixture
def loaded_vocabulary(encoding: tiktoken.Encoding, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session's vocabulary for every run in this process."""
    monkeypatch.setattr("trimtab.proxy.compaction.pool.load_encoding", lambda _: encoding)
