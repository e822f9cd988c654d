"""The dashboard's data follow the configuration."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.client import CHAT, post
from support.events import read_events

from trimtab.proxy.config.load import load_config
from trimtab.proxy.memory import MAX_HISTORY_BYTES, MAX_TEXT_BYTES
from trimtab.proxy.server.admin import opening
from trimtab.proxy.server.admin.opening import measure_dashboard, open_history
from trimtab.proxy.server.reload import adopt

MB = 1024 * 1024


def load(*settings):
    return load_config(settings=settings, environment={})


def test_the_memory_is_promised_only_for_what_is_on():
    assert measure_dashboard(load("dashboard.enabled=false", "dashboard.keep_text=true")) == 0
    assert measure_dashboard(load()) == MAX_HISTORY_BYTES
    assert measure_dashboard(load("dashboard.keep_text=true")) == MAX_HISTORY_BYTES + MAX_TEXT_BYTES
    assert measure_dashboard(load("limits.max_memory_bytes=536870912", "dashboard.keep_text=true")) == (8 + 32) * MB


async def test_a_reload_switches_the_dashboard_and_its_texts(client, start_proxy):
    proxy = await start_proxy("dashboard.keep_text=true")
    past, config = proxy.services.past, proxy.services.config
    await post(client, f"{proxy.url}/v1/chat/completions", CHAT)
    await proxy.services.lifecycle.idle.wait()
    stream = await client.get(f"{proxy.url}/trimtab/api/events")
    assert (past.keeps_text, len(await read_events(past))) == (True, 1)
    no_text = config.model_copy(update={"dashboard": config.dashboard.model_copy(update={"keep_text": False})})
    adopt(proxy.current, no_text)
    assert (past.keeps_text, len(await read_events(past))) == (False, 1)
    off = config.model_copy(update={"dashboard": config.dashboard.model_copy(update={"enabled": False})})
    adopt(proxy.current, off)
    assert (proxy.services.history, await read_events(past)) == (None, [])
    async with asyncio.timeout(30):
        await stream.content.read()  # it ends
    await post(client, f"{proxy.url}/v1/chat/completions", CHAT)
    await proxy.services.lifecycle.idle.wait()
    assert await read_events(past) == []
    adopt(proxy.current, config)
    await post(client, f"{proxy.url}/v1/chat/completions", CHAT)
    await proxy.services.lifecycle.idle.wait()
    assert len(await read_events(past)) == 1


def test_the_default_store_has_its_events_beside_it():
    (file,) = open_history(load()).places.files
    assert file.name == "events.sqlite3"


def test_events_have_half_of_the_history_s_memory():
    assert open_history(load("limits.max_memory_bytes=536870912", "store=memory")).places.bounds.events_bytes == 4 * MB


@pytest.mark.parametrize(
    ("store", "files"),
    [("memory", []), ("sqlite:////data/store", ["/data/store.events"]), ("redis://127.0.0.1:9/0", [])],
)
def test_the_table_is_where_summaries_are_and_workers_share_a_folder(store, files, tmp_path):
    """Texts are never there. All workers together may keep what each of them may."""
    config = load(f"store={store}")
    alone = open_history(config).places
    worker = SimpleNamespace(number=2, count=3, metrics=SimpleNamespace(path=tmp_path))
    shared = open_history(config, worker).places
    assert (alone.files, alone.texts) == ([Path(file) for file in files], ":memory:")
    assert shared.files == [*alone.files, tmp_path / "events.sqlite3"]
    assert shared.texts == str(tmp_path / "texts.sqlite3")
    assert (alone.log is not None) is store.startswith("redis")
    assert (shared.worker, shared.workers, alone.workers) == (2, 3, 1)
    assert shared.bounds.events == 3 * alone.bounds.events


@pytest.mark.parametrize(("store", "events_mb"), [("memory", 16), ("sqlite:////data/store", 64)])
def test_what_is_kept_in_memory_leaves_space_for_the_metrics(store, events_mb, tmp_path, monkeypatch):
    """They are in the same folder. In a container its file system has 64 MB."""
    monkeypatch.setattr(opening.shutil, "disk_usage", lambda _: SimpleNamespace(total=64 * MB))
    worker = SimpleNamespace(number=1, count=8, metrics=SimpleNamespace(path=tmp_path))
    bounds = open_history(load(f"store={store}"), worker).places.bounds
    assert (bounds.text_bytes, bounds.events_bytes) == (16 * MB, events_mb * MB)
