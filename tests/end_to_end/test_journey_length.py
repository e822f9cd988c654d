"""Limits how many files and calls a request goes through: a reader must be able to follow it."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import orjson
from support.client import post

from trimtab import proxy, rules

MAX_FILES = 65
MAX_HOPS = 202
ROOTS = tuple(str(Path(package.__path__[0])) + "/" for package in (proxy, rules))
CALL = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "x", "content": "ok"},
    {"role": "assistant", "content": "Looked."},
    {"role": "user", "content": "And now?"},
    {"role": "assistant", "content": "Nothing."},
    {"role": "user", "content": "Fine."},
]
_BLOCK = frozenset({"__enter__", "__exit__", "__aenter__", "__aexit__"})
"""A `with` block counts once, when it is created. Its enter and exit are not counted, in a class or in a generator."""
_SUSPENDING = 0x20 | 0x80 | 0x200
"""Flags of code objects: generator, coroutine, async generator. The profiler reports each resumption as a call."""


@dataclass(slots=True)
class Trace:
    """Calls inside the program: the files that they enter, and the number of calls from one file to another."""

    files: set[str] = field(default_factory=set)
    hops: int = 0

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Record an event of the profiler."""
        if event != "call" or not _is_ours(frame.f_code) or _goes_on(frame) or frame.f_code.co_name in _BLOCK:
            return
        caller = frame.f_back
        while caller is not None and not _is_ours(caller.f_code):
            caller = caller.f_back
        name = frame.f_code.co_filename
        self.files.add(name)
        self.hops += caller is None or caller.f_code.co_filename != name


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(ROOTS)


def _goes_on(frame: FrameType) -> bool:
    """Whether it is not a call but a coroutine or a generator that resumes."""
    return bool(frame.f_code.co_flags & _SUSPENDING) and frame.f_lasti > 8


@contextmanager
def tracing() -> Iterator[Trace]:
    """Trace the calls of the block, and of everything else that runs on the event loop."""
    trace, before = Trace(), sys.getprofile()
    sys.setprofile(trace.note)
    try:
        yield trace
    finally:
        sys.setprofile(before)


async def test_a_known_request_that_needs_nothing_goes_a_short_way(client, upstream, start_proxy):
    """From the socket to the log line and back, with warm caches."""
    upstream.models = orjson.dumps(
        {"data": [{"id": "gpt-4o", "max_model_len": 128_000}]}
    )  # so that trimtab does not ask again
    running = await start_proxy()
    body = orjson.dumps({"model": "gpt-4o", "messages": MESSAGES})
    for _ in range(4):
        await post(client, running.url + "/v1/chat/completions", body)
    idle = running.services.lifecycle.idle
    await idle.wait()
    await running.services.models.settle()
    with tracing() as trace:
        response, _ = await post(client, running.url + "/v1/chat/completions", body)
        await idle.wait()
        await asyncio.sleep(0)

    assert response.status == 200
    assert "proxy/exchange/serve.py" in str(trace.files)
    assert len(trace.files) <= MAX_FILES, "\n".join(sorted(trace.files))
    assert trace.hops <= MAX_HOPS
