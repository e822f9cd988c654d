"""The public interface of compaction: the bytes of a request in, the bytes to send out."""

import re
from pathlib import Path

import orjson
import pytest

from trimtab.proxy.compaction import (
    Compactor,
    UndecodableError,
    VocabularyError,
    load_compactor,
    read_messages,
    read_request,
)

CALL = {"id": "1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
MESSAGES = [
    {"role": "user", "content": "look"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "\n".join(f"line {number} of it" for number in range(3000))},
]


def test_messages_make_the_same_request_as_their_body() -> None:
    request = read_messages(MESSAGES, model="gpt-4o", max_tokens=100)

    assert (request.model, request.max_tokens) == ("gpt-4o", 100)
    assert request.raws == read_request(orjson.dumps({"messages": MESSAGES})).raws


def test_what_cannot_be_read_or_counted_is_told() -> None:
    """The law holds for a body that is no request, and for an unknown vocabulary. The heuristic needs no vocabulary."""
    with pytest.raises(UndecodableError):
        read_request(b'{"prompt": "x"}')
    with pytest.raises(VocabularyError):
        load_compactor("gpt-4o", vocabulary="none_base")
    assert isinstance(load_compactor("gpt-4o", vocabulary="heuristic"), Compactor)


def test_the_example_of_the_library_page_runs_as_it_stands() -> None:
    text = Path(__file__).parents[3].joinpath("docs/reference/library.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(snippets) >= 2
    names: dict[str, object] = {}
    exec("\n".join(snippets), names)  # noqa: S102 - our own words

    assert names["wanted"] is None
    assert [decision.rule for decision in names["compacted"].decisions] == ["truncate"]
