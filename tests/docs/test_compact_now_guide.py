"""docs/guides/compact-now.md: the hook tells an agent before it is cut, streamed and not."""

import asyncio
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.client import SMALL
from support.sessions import make_session, requests_of

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "compact-now.md"


@pytest.mark.parametrize("stream", [False, True])
async def test_the_hook_is_called_with_the_answer_before_a_cut(
    stream: Any, upstream: Any, start_proxy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = await start_proxy(*SMALL, "defaults.overflow_strategy=prune", "prices={}")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{proxy.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-agent")
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[0], names)  # noqa: S102 - our own words
    told = list[int]()
    names["save_state"] = lambda: told.append(len(upstream.chats))

    def ask(messages: list[Any]) -> None:
        answer = names["complete"](model="m", messages=messages, stream=stream)
        assert not stream or list(answer)

    sizes = list[int]()
    for messages in requests_of(make_session(40, result_words=120)):
        await asyncio.to_thread(ask, messages)
        sizes.append(len(upstream.chats[-1].body))
    names["client"].close()
    cuts = [at for at, (before, after) in enumerate(pairwise(sizes), 1) if after < before]

    assert cuts
    assert cuts[0] in told  # the request before the first cut is the one of that number, counted from one
    assert len(told) < len(sizes) / 2
