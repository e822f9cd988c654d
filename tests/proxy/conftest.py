"""Shared by the shell's tests: the loaded vocabulary, and a log that leaves no trace."""

from collections.abc import Iterator

import pytest
import structlog
import tiktoken

from trimtab.proxy.compaction.tokenizers.exact import count_pieces, load_encoding, make_counter
from trimtab.proxy.telemetry.logs import reset_log
from trimtab.rules.conversation import CountTokens


@pytest.fixture(scope="session")
def encoding() -> tiktoken.Encoding:
    """The packed vocabulary, loaded once: it takes a third of a second."""
    return load_encoding("o200k_base")


@pytest.fixture
def loaded_vocabulary(encoding: tiktoken.Encoding, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session's vocabulary for whatever loads one in this process."""
    monkeypatch.setattr("trimtab.proxy.compaction.pool.load_encoding", lambda _: encoding)


@pytest.fixture(scope="session")
def count(encoding: tiktoken.Encoding) -> CountTokens:
    """Exact token counts."""
    return make_counter(count_pieces(encoding))


@pytest.fixture
def restored_log() -> Iterator[None]:
    """Restore structlog's configuration after the test."""
    yield
    reset_log()
    structlog.reset_defaults()
