"""The dashboard's data follow the configuration."""

import asyncio
from dataclasses import replace

from support.client import CHAT, post
from support.events import make_event

from proxy.config.load import load_config
from proxy.memory import MAX_HISTORY_BYTES, MAX_TEXT_BYTES
from proxy.server.admin.dashboard.serving import measure_dashboard, open_history, serve_workers
from proxy.server.reload import adopt

MB = 1024 * 1024


def load(*settings):
    return load_config(settings=settings, environment={})


def test_the_memory_is_promised_only_for_what_is_on():
    assert measure_dashboard(load("dashboard.enabled=false", "dashboard.keep_text=true")) == 0
    assert measure_dashboard(load()) == MAX_HISTORY_BYTES
    assert measure_dashboard(load("dashboard.keep_text=true")) == MAX_HISTORY_BYTES + MAX_TEXT_BYTES
    assert measure_dashboard(load("limits.max_memory_bytes=536870912", "dashboard.keep_text=true")) == (8 + 32) * MB


async def test_requests_get_the_memory_that_the_dashboard_does_not_take(start_proxy):
    """Also after a reload."""
    on, off = await start_proxy("dashboard.keep_text=true"), await start_proxy("dashboard.enabled=false")
    added = off.services.memory.left_bytes - on.services.memory.left_bytes
    assert added == MAX_HISTORY_BYTES + MAX_TEXT_BYTES
    whole = off.services.memory.left_bytes
    adopt(on.current, off.services.config)
    assert on.services.memory.left_bytes == whole
    adopt(on.current, load("dashboard.keep_text=true"))
    assert on.services.memory.left_bytes == whole - added


async def test_a_reload_switches_the_dashboard_and_its_texts(client, start_proxy):
    """What is switched off is forgotten at once."""
    proxy = await start_proxy("dashboard.keep_text=true")
    past, config = proxy.services.past, proxy.services.config
    await post(client, f"{proxy.url}/v1/chat/completions", CHAT)
    await proxy.services.lifecycle.idle.wait()
    stream = await client.get(f"{proxy.url}/trimtab/api/events")
    assert (past.keeps_text, len(past.events)) == (True, 1)
    no_text = config.model_copy(update={"dashboard": config.dashboard.model_copy(update={"keep_text": False})})
    adopt(proxy.current, no_text)
    assert (past.keeps_text, len(past.events)) == (False, 1)
    off = config.model_copy(update={"dashboard": config.dashboard.model_copy(update={"enabled": False})})
    adopt(proxy.current, off)
    assert (proxy.services.history, past.events) == (None, ())
    async with asyncio.timeout(30):
        await stream.content.read()  # it ends
    await post(client, f"{proxy.url}/v1/chat/completions", CHAT)
    await proxy.services.lifecycle.idle.wait()
    assert past.events == ()
    adopt(proxy.current, config)
    await post(client, f"{proxy.url}/v1/chat/completions", CHAT)
    await proxy.services.lifecycle.idle.wait()
    assert len(past.events) == 1


async def test_a_history_is_opened_with_the_share_of_its_memory():
    history = open_history(load("limits.max_memory_bytes=536870912"), lambda _: None)
    for number in range(3000):
        history.add(make_event(str(number), reason="x" * 1500))
    assert 3.8 * MB < history._total_bytes <= 4 * MB


async def test_a_single_process_serves_nobody():
    async with serve_workers(replace, None):
        pass
