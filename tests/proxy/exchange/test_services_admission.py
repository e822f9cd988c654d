"""Whether there is memory and a thread for a request."""

from typing import Any

import orjson
import pytest
from support.client import post
from support.journeys import MakeStages, make_reply

from trimtab.proxy.compaction.offload import BusyError
from trimtab.proxy.exchange.services import translate, working
from trimtab.proxy.http.errors import OverloadedError
from trimtab.proxy.http.request_body import ReceivedBody


def _write(text: str, **members: Any) -> bytes:
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **members})


@pytest.mark.parametrize("error", [BusyError(), MemoryError()])
def test_what_there_is_no_room_for_is_said(error: BusyError | MemoryError) -> None:
    """If no thread or no memory is free, the answer is 503 with a message."""
    with pytest.raises(OverloadedError, match="try again"):
        raise translate(error)


async def test_a_body_for_which_there_would_never_be_memory_streams_through(client, upstream, start_proxy) -> None:
    """Some bodies take more memory than others of the same size. They are not decoded, but reach the upstream."""
    proxy = await start_proxy()
    body = _write("é" * 20_000)
    proxy.services.memory.add(20 * len(body) - 2 * proxy.services.memory.most_bytes)
    for sent, outcome in ((body, "too_large"), (_write("e" * 30_000), "unchanged")):
        response, _ = await post(client, proxy.url + "/v1/chat/completions", sent)
        assert (response.status, upstream.chats[-1].body) == (200, sent)
        text = (await (await client.get(proxy.url + "/metrics")).read()).decode()
        assert f'outcome="{outcome}"' in text


async def test_what_is_not_decoded_takes_no_memory_for_work(make_stages: MakeStages) -> None:
    """It only passes through."""
    stages = await make_stages()
    left_bytes = stages.services.memory.left_bytes
    async with working(stages.services, make_reply().request, ReceivedBody(b"x", None, b"x")):
        assert stages.services.memory.left_bytes == left_bytes
