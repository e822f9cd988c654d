"""`trimtab record` as a program with two workers, and what `trimtab inspect` says of that.

Law: the recordings add up to /metrics, to the token, and each can be planned again.
"""

import asyncio
import re
import signal
import stat
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from programs.serving import read_log, serving
from support.client import SMALL, post
from support.command_line import run_trimtab
from support.recordings import plan_again
from support.sessions import make_session

from trimtab.proxy.account.recordings.folder import read_all
from trimtab.proxy.account.recordings.format import Recording
from trimtab.proxy.cli.records.run import find_difference

CLIENTS = 12
"""This many clients, each on its own connections, reach both workers, except once in two thousand runs."""
STOPS = (20, 40, 60, 82)
KEY = "sk-planted-0123456789-{}"


def settings_of(folder: Path) -> tuple[str, ...]:
    given = (*SMALL, "workers=2", f"store=sqlite:///{folder}.sqlite3")
    return tuple(part for setting in given for part in ("--set", setting))


async def play(url: str, number: int) -> None:
    """A client with a key of its own sends a session, each request on a new connection."""
    session = make_session(40)
    for stop in STOPS:
        async with aiohttp.ClientSession() as client:
            body = {"model": "m", "messages": session["messages"][:stop], "tools": session["tools"], "seed": number}
            answer, _ = await post(
                client, f"{url}/chat/completions", body, authorization=f"Bearer {KEY.format(number)}"
            )
            assert answer.status == 200


async def read_metrics(url: str) -> dict[str, float]:
    """The metrics page, once no request is in flight: the sum of each metric over its series."""
    page: dict[str, float] = {"trimtab_requests_in_flight": 1}
    while page["trimtab_requests_in_flight"]:  # a request is counted once its cost is booked, a little after its answer
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            text = await response.text()
        page = {}
        for name, value in re.findall(r"^([a-z_]+)(?:\{.*\})? (\S+)$", text, re.MULTILINE):
            page[name] = page.get(name, 0.0) + float(value)
    return page


async def stop(process: Any) -> None:
    process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(process.wait(), 60)


def read(folder: Path) -> list[Recording]:
    return list(read_all(folder, lambda path, reason: pytest.fail(f"{path}: {reason}")))


async def test_the_recordings_of_an_hour_add_up_to_the_metrics(upstream, compactors, tmp_path) -> None:
    folder = tmp_path / "recordings"
    arguments = ("--dir", str(folder), "--upstream", upstream.url, *settings_of(folder))
    async with serving(*arguments, command="record") as (process, url):
        lines = await read_log(process, "recording")
        assert lines[-1]["dir"] == str(folder)
        assert "without keys" in lines[-1]["meaning"]
        await asyncio.gather(*(play(url, number) for number in range(CLIENTS)))
        page = await read_metrics(url.removesuffix("/v1") + "/metrics")
        await stop(process)

    requests = [one for one in read(folder) if one.call is None]
    assert len(requests) == CLIENTS * len(STOPS)
    assert page["trimtab_requests_total"] == len(requests)
    original, sent = (sum(getattr(one.event, f"{stage}_tokens") for one in requests) for stage in ("original", "sent"))
    assert page["trimtab_prompt_tokens_total"] == original + sent
    saved = sum(decision.saved_tokens for one in requests for decision in one.counted.decisions)
    assert page["trimtab_tokens_saved_total"] - page.get("trimtab_tokens_added_total", 0) == saved
    assert saved == original - sent > 0
    for recording in requests:
        again = plan_again(compactors, recording)
        assert again is not None
        assert find_difference(recording, again) == ""

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert not [one for one in requests if b"sk-planted" in one.received_body]


async def test_the_three_questions_are_answered_by_one_command_each(upstream, tmp_path) -> None:
    folder = tmp_path / "recordings"
    arguments = ("--upstream", upstream.url, *settings_of(folder), "--set", f"record.dir={folder}")
    async with serving(*arguments) as (process, url):
        await play(url, 1)
        await stop(process)

    def inspect(*more: str) -> bytes:
        told = run_trimtab("inspect", *more, "--dir", folder)
        assert told.exit_code == 0, told.output
        return told.stdout_bytes

    assert inspect("last", "--sent") == upstream.chats[-1].body
    assert len(inspect().splitlines()) == 1 + len(STOPS)
    described = orjson.loads(inspect("last", "--json"))
    assert described["story"]
    assert any(change["tool"] == "read_file" and change["fate"] == "removed" for change in described["changes"])
