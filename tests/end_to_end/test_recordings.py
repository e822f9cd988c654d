"""What `trimtab inspect` says of the recordings of a program with two workers."""

import asyncio
import signal

import aiohttp
import orjson
from programs.serving import serving
from support.client import SMALL, post
from support.command_line import run_trimtab
from support.sessions import make_session

STOPS = (20, 40, 60, 82)


async def test_the_three_questions_are_answered_by_one_command_each(upstream, tmp_path) -> None:
    folder, session = tmp_path / "recordings", make_session(40)
    given = (*SMALL, "workers=2", f"store=sqlite:///{tmp_path}/a.sqlite3", f"record.dir={folder}")
    settings = [part for setting in given for part in ("--set", setting)]
    async with serving("--upstream", upstream.url, *settings) as (process, url):
        for stop in STOPS:
            async with aiohttp.ClientSession() as client:  # a new connection each, so that both workers get some
                body = {"model": "m", "messages": session["messages"][:stop], "tools": session["tools"]}
                assert (await post(client, f"{url}/chat/completions", body))[0].status == 200
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 60)

    def inspect(*more: str) -> bytes:
        told = run_trimtab("inspect", *more, "--dir", folder)
        assert told.exit_code == 0, told.output
        return told.stdout_bytes

    assert inspect("last", "--sent") == upstream.chats[-1].body
    assert len(inspect().splitlines()) == 1 + len(STOPS)
    described = orjson.loads(inspect("last", "--json"))
    assert described["story"]
    assert any(change["tool"] == "read_file" and change["fate"] == "removed" for change in described["changes"])
