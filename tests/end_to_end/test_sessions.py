"""Recorded agent sessions, replayed turn by turn through the running proxy. Most exceed the window."""

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from typing import Any

import orjson
import pytest
import tiktoken
from support.dialects.oddities import NotConvertibleError
from support.dialects.spoken.all_dialects import DIALECTS
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import Dialect
from support.sessions import DATA, read_rows, recorded_files, requests_of

from trimtab.proxy.compaction.tokenizers.exact import load_encoding

WINDOW, RESERVE = 32_000, 4_000
EACH, TENTH = 30, 10
"""Requests of a session that are all sent; of a longer one every tenth and the last."""


def choose_session(dialect: Dialect, rows: list[dict[str, Any]]) -> int | None:
    """The shortest session of a file that exceeds the window and that a dialect can say; None if there is none."""
    sizes = [len(orjson.dumps(row["messages"])) for row in rows]
    for number in sorted(range(len(rows)), key=sizes.__getitem__):
        last = [*requests_of(rows[number]), []][-2]
        if sizes[number] > 6 * WINDOW and last:
            with suppress(NotConvertibleError):
                dialect.write(last)
                return number
    return None


def list_sessions() -> Iterator[Any]:
    """The shortest session of each file in chat completions, and one that exceeds the window in each dialect.

    `python -m bench.sessions.run` plays all of them.
    """
    for file in recorded_files("conversations"):
        rows = list(read_rows(file))
        shortest = min(range(len(rows)), key=lambda number: len(rows[number]["messages"]))
        yield pytest.param(CHAT, file.name, shortest, id=f"{file.stem}-{shortest}")
        for dialect in DIALECTS:
            number = choose_session(dialect, rows)
            if number is not None:
                marks = pytest.mark.slow if file.is_relative_to(DATA) else ()
                yield pytest.param(dialect, file.name, number, id=f"{dialect}-{file.stem}-{number}", marks=marks)


pytestmark = pytest.mark.recorded


@lru_cache(maxsize=1)
def encoding() -> tiktoken.Encoding:
    """The tokenizer, without trimtab's own counter."""
    return load_encoding("o200k_base")


@lru_cache(maxsize=100_000)
def count_text(text: str) -> int:
    """The tokens of one text."""
    return len(encoding().encode_ordinary(text))


def count_content(messages: list[dict[str, Any]]) -> int:
    """A lower bound of the prompt tokens: contents and calls, without the format around them."""
    tokens = 0
    for message in messages:
        content = message.get("content") or ""
        parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        calls = message.get("tool_calls") or []
        parts += [text for call in calls for text in (call["function"]["name"], call["function"]["arguments"])]
        tokens += sum(map(count_text, parts))
    return tokens


@pytest.mark.parametrize(("dialect", "name", "number"), list(list_sessions()))
async def test_session_stays_within_the_window(dialect, name, number, *, client, upstream, start_proxy):
    """All requests succeed, are valid, fit the window, and are unchanged if no rule acted."""
    proxy = await start_proxy(f"defaults.context_window={WINDOW}", f"defaults.completion_reserve={RESERVE}")
    file = next(file for file in recorded_files("conversations") if file.name == name)
    session = list(read_rows(file))[number]
    tools_tokens = count_text(orjson.dumps(session.get("tools") or []).decode())
    requests = list(requests_of(session))
    for messages in requests if len(requests) <= EACH else [*requests[::TENTH], requests[-1]]:
        body = orjson.dumps(dialect.write(messages, session.get("tools") or ()))
        upstream.requests.clear()
        async with client.post(proxy.url + dialect.path, data=BytesIO(body)) as response:
            await response.read()
        assert response.status == 200
        (sent,) = upstream.chats
        if "x-trimtab-decisions" not in response.headers:
            assert sent.body == body
        assert dialect.check_request(body, sent.body) == []
        # May exceed the limit while a summary is being written: a request that fits the window does not wait for it.
        assert count_content(dialect.read(sent.json)) + tools_tokens <= WINDOW
