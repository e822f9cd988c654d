"""The services of requests."""

from contextlib import ExitStack, suppress
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st
from support.client import post
from support.journeys import MakeStages, make_reply

from trimtab.proxy.compaction.offload import BusyError
from trimtab.proxy.exchange.services import Lifecycle, Serving, translate, working
from trimtab.proxy.http.errors import OverloadedError
from trimtab.proxy.http.relay import Reply
from trimtab.proxy.http.request_body import ReceivedBody


def _make_reply() -> Reply:
    return Reply(make_mocked_request("POST", "/v1/chat/completions"))


def test_a_proxy_is_idle_until_a_request_comes_and_after_the_last_has_gone() -> None:
    """However requests end. Each new number is shown, and the end of the last one is told before the proxy is idle.

    So nothing waits in the recorder's ring while nobody is served, whoever waits for `idle`.
    """
    lifecycle, shown, told = Lifecycle(), list[int](), list[tuple[int, bool]]()
    lifecycle.show = shown.append
    lifecycle.drain = lambda: told.append((lifecycle.in_flight, lifecycle.idle.is_set()))
    assert lifecycle.idle.is_set()
    with Serving(lifecycle, _make_reply(), ""):
        with suppress(ValueError), Serving(lifecycle, _make_reply(), ""):
            assert (lifecycle.in_flight, lifecycle.idle.is_set()) == (2, False)
            raise ValueError
        assert (lifecycle.idle.is_set(), told) == (False, [])

    assert (lifecycle.idle.is_set(), told) == (True, [(0, False)])
    assert (shown, lifecycle.in_flight, lifecycle.ready) == ([1, 2, 1, 0], 0, False)


@given(clients=st.lists(st.sampled_from(["", "alice", "bob"]), max_size=12), answered=st.sets(st.integers(0, 11)))
def test_a_client_s_requests_count_until_their_last_byte_is_sent(clients, answered) -> None:
    lifecycle = Lifecycle()
    with ExitStack() as open_requests:
        for index, client in enumerate(clients):
            reply = _make_reply()
            reply.last_byte_at = float(index in answered)
            open_requests.enter_context(Serving(lifecycle, reply, client))
        for name in ("alice", "bob"):
            going = [index for index, client in enumerate(clients) if client == name and index not in answered]
            assert lifecycle.count_of(name) == len(going)
        assert lifecycle.count_of("") == 0

    assert lifecycle.by_client == {}


def _write(text: str, **members: Any) -> bytes:
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **members})


@pytest.mark.parametrize("error", [BusyError(), MemoryError()])
def test_what_there_is_no_room_for_is_said(error: BusyError | MemoryError) -> None:
    with pytest.raises(OverloadedError, match="try again"):
        raise translate(error)


async def test_a_body_for_which_there_would_never_be_memory_streams_through(client, upstream, start_proxy) -> None:
    proxy = await start_proxy()
    body = _write("é" * 20_000)
    proxy.services.memory.add(20 * len(body) - 2 * proxy.services.memory.most_bytes)
    for sent, outcome in ((body, "too_large"), (_write("e" * 30_000), "unchanged")):
        response, _ = await post(client, proxy.url + "/v1/chat/completions", sent)
        assert (response.status, upstream.chats[-1].body) == (200, sent)
        text = (await (await client.get(proxy.url + "/metrics")).read()).decode()
        assert f'outcome="{outcome}"' in text


async def test_what_is_not_decoded_takes_no_memory_for_work(make_stages: MakeStages) -> None:
    stages = await make_stages()
    left_bytes = stages.services.memory.left_bytes
    async with working(stages.services, make_reply().request, ReceivedBody(b"x", None, b"x")):
        assert stages.services.memory.left_bytes == left_bytes
