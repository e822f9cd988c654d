"""What the shell's tests share: the loaded vocabulary, and a log that leaves no trace."""

from collections.abc import Iterator

import pytest
import structlog
import tiktoken

from proxy.compaction.tokenizers.exact import count_pieces, load_encoding, make_counter
from rules.conversation import CountTokens


@pytest.fixture(scope="session")
def encoding() -> tiktoken.Encoding:
    """The packed vocabulary, loaded once: it takes a third of a second."""
    return load_encoding("o200k_base")


@pytest.fixture(scope="session")
def count(encoding: tiktoken.Encoding) -> CountTokens:
    """Exact counts."""
    return make_counter(count_pieces(encoding))


@pytest.fixture
def restored_log() -> Iterator[None]:
    """Structlog as it was before, whatever the test configured."""
    yield
    structlog.reset_defaults()
