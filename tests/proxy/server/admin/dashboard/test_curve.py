"""The curve from the recordings of this proxy: computed elsewhere, once, and only if something is recorded."""

import asyncio
from pathlib import Path

import orjson
from support.client import CHAT
from support.recordings import keep, make_recording

from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import Config
from trimtab.proxy.server.admin.dashboard.curve import Curve
from trimtab.proxy.tasks import Tasks

POLICIES = """
upstreams: {other: {base_url: "http://127.0.0.1:9/v1"}}
defaults: {upstream: other, economy: frugal, summary: {upstream: other, min_steps: 3}, tools: {"run*": {exclude: true}}}
models: [{match: "q*", high_water: 0.5}]
"""


def _configure(folder: Path) -> Config:
    return load_config(POLICIES, settings=(f"record.dir={folder}",), environment={})


def _make_tasks() -> Tasks:
    """Tasks whose errors fail the test."""

    def fail(error: BaseException) -> None:
        raise error

    return Tasks(fail)


async def _show_when_done(curve: Curve, config: Config, background: Tasks) -> dict[str, object]:
    assert curve.show(config, background) == {"state": "running"}
    assert curve.show(config, background) == {"state": "running"}
    await background.settle()
    return curve.show(config, background)


async def test_nothing_is_computed_without_recordings() -> None:
    """The page then says what to do."""
    assert Curve().show(load_config("", environment={}), _make_tasks()) == {"state": "off"}
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_recordings_are_replayed_once(tmp_path: Path) -> None:
    """With the policies of the configuration; the result is kept."""
    for number in range(2):
        keep(tmp_path, make_recording(f"{number:02x}" * 12, body=orjson.dumps(CHAT).decode()))
    curve, background, config = Curve(), _make_tasks(), _configure(tmp_path)
    shown = await _show_when_done(curve, config, background)
    assert (shown["state"], shown["requests"]) == ("ready", 2)
    points = shown["points"]
    assert isinstance(points, list)
    assert [point["name"] for point in points][:4] == ["recorded", "careful", "balanced", "frugal"]
    assert curve.show(config, background) is shown


async def test_a_folder_that_cannot_be_replayed_is_told(tmp_path: Path) -> None:
    """And is not tried again at once."""
    curve, background, config = Curve(), _make_tasks(), _configure(tmp_path / "none")
    shown = await _show_when_done(curve, config, background)
    assert (shown["state"], shown["points"]) == ("failed", [])
    assert curve.show(config, background) is shown


async def test_the_computation_ends_with_the_proxy(tmp_path: Path) -> None:
    """The other process is killed with it."""
    keep(tmp_path, make_recording("ab" * 12, body=orjson.dumps(CHAT).decode()))
    curve, background = Curve(), _make_tasks()
    assert curve.show(_configure(tmp_path), background) == {"state": "running"}
    await asyncio.sleep(0)
    await background.close()
    assert background.is_idle
    assert asyncio.all_tasks() == {asyncio.current_task()}
