"""The curve from the recordings of this proxy: computed elsewhere, once, and only if something is recorded."""

import asyncio
from pathlib import Path

import orjson
from support.client import CHAT
from support.recordings import keep, make_recording

from proxy.config.load import load_config
from proxy.config.schema import Config
from proxy.server.admin.dashboard.curve import Curve

POLICIES = """
upstreams: {other: {base_url: "http://127.0.0.1:9/v1"}}
defaults: {upstream: other, economy: frugal, summary: {upstream: other, min_steps: 3}, tools: {"run*": {exclude: true}}}
models: [{match: "q*", high_water: 0.5}]
"""


def _configure(folder: Path) -> Config:
    return load_config(POLICIES, settings=(f"record.dir={folder}",), environment={})


async def _show_when_done(curve: Curve, config: Config) -> dict[str, object]:
    assert curve.show(config) == {"state": "running"}
    assert curve.show(config) == {"state": "running"}
    (task,) = asyncio.all_tasks() - {asyncio.current_task()}
    await task
    return curve.show(config)


async def test_nothing_is_computed_without_recordings() -> None:
    """The page then says what to do."""
    assert Curve().show(load_config("", environment={})) == {"state": "off"}
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_recordings_are_replayed_once(tmp_path: Path) -> None:
    """With the policies of the configuration; the result is kept."""
    for number in range(2):
        keep(tmp_path, make_recording(f"{number:02x}" * 12, body=orjson.dumps(CHAT).decode()))
    curve, config = Curve(), _configure(tmp_path)
    shown = await _show_when_done(curve, config)
    assert (shown["state"], shown["requests"]) == ("ready", 2)
    points = shown["points"]
    assert isinstance(points, list)
    assert [point["name"] for point in points][:4] == ["recorded", "careful", "balanced", "frugal"]
    assert curve.show(config) is shown


async def test_a_folder_that_cannot_be_replayed_is_told(tmp_path: Path) -> None:
    """And is not tried again at once."""
    curve, config = Curve(), _configure(tmp_path / "none")
    shown = await _show_when_done(curve, config)
    assert (shown["state"], shown["points"]) == ("failed", [])
    assert curve.show(config) is shown
