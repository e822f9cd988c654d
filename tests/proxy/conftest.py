"""Shared by the shell's tests: exact counts, and a log that leaves no trace."""

from collections.abc import Iterator

import pytest
import structlog
import tiktoken

from trimtab.proxy.compaction.tokenizers.exact import count_pieces, make_counter
from trimtab.proxy.telemetry.logs import reset_log
from trimtab.rules.conversation import CountTokens


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
