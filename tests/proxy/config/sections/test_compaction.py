"""Which requests are compacted: the dialect of paths that do not tell it."""

import pytest
from pydantic import ValidationError

from proxy.config.sections.compaction import CompactionConfig


def test_a_path_stands_with_and_without_a_slash_at_its_end() -> None:
    """Requests are looked up without it."""
    assert CompactionConfig(paths={"/llm/generate/": "chat", "/ask": "messages"}).paths == {
        "/llm/generate": "chat",
        "/ask": "messages",
    }


@pytest.mark.parametrize("path", ["/", "/llm/*", "llm", "/a/../b", "/a?b"])
def test_a_path_is_whole_and_plain(path: str) -> None:
    """A pattern, a query or dot segments would claim other paths than it seems."""
    with pytest.raises(ValidationError):
        CompactionConfig(paths={path: "chat"})
