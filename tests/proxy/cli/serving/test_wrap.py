"""`trimtab wrap`: a command with the proxy in front of its models, as a person starts it."""

import asyncio
import os
import pty
import signal
import stat
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
from aiohttp import web
from programs.serving import own_environment
from programs.starts import start_trimtab
from support.client import SMALL
from support.events import make_event
from support.golden import check_golden
from support.sessions import make_session
from upstreams.recording import FakeUpstream, Recorded, error

from trimtab.proxy.cli.serving import wrap
from trimtab.proxy.cli.serving.wrap import (
    CannotRunError,
    Destination,
    Family,
    choose_destinations,
    run_child,
    write_environment,
)
from trimtab.proxy.config.load import load_config

KEY = "sk-PLANTED-KEY"
TEXT = "PLANTED TEXT"
NAMES = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE", "AZURE_OPENAI_ENDPOINT")
ASK = """
import json, sys
from openai import OpenAI
messages = json.load(sys.stdin)
answer = OpenAI(max_retries=0).chat.completions.create(model="m", messages=messages)
print(answer.choices[0].message.content)
"""
"""A program with OpenAI's own SDK, which reads its server and its key from the environment."""
ASK_BOTH = """
import os, urllib.request
for name, path in (("OPENAI_BASE_URL", "/chat/completions"), ("ANTHROPIC_BASE_URL", "/v1/messages")):
    body = b'{"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}'
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ[name] + path, body, headers)
    print(urllib.request.urlopen(request).status)
"""
WAIT = "import time; print('begun', flush=True); time.sleep(60)"


def environment(**more: str) -> dict[str, str]:
    """The environment of a person who has a key, and no other variable of a provider."""
    kept = {name: value for name, value in own_environment().items() if name not in NAMES}
    return {**kept, "OPENAI_API_KEY": KEY, **more}


async def start(*arguments: str, **more: str) -> Process:
    command = ("wrap", "--set", "store=memory", *arguments)
    return await start_trimtab(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment(**more))


async def run(*arguments: str, given: bytes = b"", **more: str) -> tuple[int, str, list[str]]:
    """The status, standard output, and the lines of standard error."""
    process = await start(*arguments, **more)
    out, err = await asyncio.wait_for(process.communicate(given), 60)
    return process.returncode, out.decode(), err.decode().splitlines()


def test_a_request_that_fits_by_compaction_alone_would_not_have_fit() -> None:
    """What stays above the limit does not count, and what was not sent."""
    recent = wrap._Recent()
    figures = [(9, 8, 8), (8, 8, 8), (9, 8, 9), (9, 8, 0)]
    recent.observe(
        make_event(original_tokens=one, limit_tokens=limit, sent_tokens=sent) for one, limit, sent in figures
    )
    assert recent.fitted == 1


async def test_an_sdk_asks_through_the_proxy_and_the_savings_are_told(upstream: FakeUpstream, tmp_path: Path) -> None:
    """The program is unchanged: key and input are its own. The figures are those of the log. No secret is shown."""
    pytest.importorskip("openai", reason="OpenAI's library is not installed")
    messages = make_session(20)["messages"][:-1]
    messages[1]["content"] = f"{TEXT} {messages[1]['content']}"
    file = tmp_path / "log.jsonl"
    settings = [part for one in (*SMALL, "defaults.overflow_strategy=prune") for part in ("--set", one)]
    options = ("--upstream", upstream.url, "--log-file", str(file), *settings)
    status, out, err = await run(*options, sys.executable, "-c", ASK, given=orjson.dumps(messages))

    assert (status, out) == (0, "All good.\n")
    (asked,) = upstream.requests
    assert asked.header("Authorization") == [f"Bearer {KEY}"]
    lines = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    (logged,) = [line for line in lines if line["event"] == "request"]
    original, sent = logged["original_tokens"], logged["sent_tokens"]
    assert original > logged["limit_tokens"] > sent
    assert err[0].startswith(f"trimtab: OPENAI_BASE_URL, ANTHROPIC_BASE_URL → {upstream.url}; dashboard http://127.")
    share = f"{1 - sent / original:.0%}"
    assert err[1] == f"trimtab: 1 request, {original:,} → {sent:,} prompt tokens ({share} fewer)"
    assert err[2] == "trimtab: requests with a cut: 1 pruned; 1 request would not have fit"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    told = "\n".join(err) + file.read_text()
    assert KEY not in told
    assert TEXT not in told


async def test_a_session_that_failed_has_saved_nothing_and_is_told_why(upstream: FakeUpstream) -> None:
    async def refuse(_recorded: Recorded, _request: web.BaseRequest) -> web.StreamResponse:
        return error(400, message="no such parameter", code="invalid_request")

    upstream.answer = refuse
    status, _, err = await run("--upstream", upstream.url, sys.executable, "-c", ASK_BOTH)
    told = [line for line in err[1:] if line.startswith("trimtab")]
    assert (status, told[0], len(told)) == (1, "trimtab: 1 request, 1 of them failed (100%)", 2)
    assert told[1].startswith("trimtab: warning: 1 of the newest 1 request failed with status 400: the upstream does")


async def test_clients_of_both_providers_keep_their_own_servers(upstream: FakeUpstream) -> None:
    """Each variable that was set names the upstream of its clients. The paths are the same as without the proxy."""
    root = upstream.url.removesuffix("/v1")
    given = {"OPENAI_BASE_URL": f"{root}/one", "ANTHROPIC_BASE_URL": f"{root}/two"}
    status, out, err = await run(sys.executable, "-c", ASK_BOTH, **given)

    assert (status, out.split()) == (0, ["200", "200"])
    assert [one.path for one in upstream.requests] == ["/one/chat/completions", "/two/v1/messages"]
    assert [line.partition(";")[0] for line in err[:2]] == [
        f"trimtab: OPENAI_BASE_URL → {root}/one",
        f"trimtab: ANTHROPIC_BASE_URL → {root}/two/v1",
    ]
    assert err[2].startswith("trimtab: 2 requests, ")


async def test_the_proxy_listens_on_loopback_only_and_ends_with_the_command(upstream: FakeUpstream) -> None:
    """Whatever address the configuration names."""
    code = "import os, sys; print(os.environ['OPENAI_BASE_URL']); sys.exit(3)"
    wide = ("--set", "listen=0.0.0.0:0", "--set", "metrics_listen=0.0.0.0:0", "--set", "workers=2")
    status, out, _ = await run("--quiet", "--upstream", upstream.url, *wide, sys.executable, "-c", code)

    assert status == 3
    host, _, port = out.strip().removeprefix("http://").removesuffix("/v1").partition(":")
    assert host == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))


async def test_options_after_the_command_are_its_own(upstream: FakeUpstream) -> None:
    """Also those that trimtab knows, after `--`. Quiet means that only the command writes."""
    status, out, err = await run("--quiet", "--", "echo", "--upstream", "x", "-h")
    assert (status, out, err) == (0, "--upstream x -h\n", [])


AGENT = "#!/bin/sh\nprintf '%s\\n' \"$@\"\n"


async def test_an_agent_gets_its_own_settings(upstream: FakeUpstream, tmp_path: Path) -> None:
    """Before its own arguments. One that cannot be led is warned of before it starts, not when nothing came."""
    for name in ("codex", "cline"):
        (tmp_path / name).write_text(AGENT)
        (tmp_path / name).chmod(0o700)
    home = {"HOME": str(tmp_path), "CODEX_HOME": str(tmp_path)}
    status, out, err = await run("--upstream", upstream.url, str(tmp_path / "codex"), "exec", "hi", **home)
    given = out.splitlines()
    assert (status, given[:2], given[-2:]) == (0, ["-c", 'model_provider="trimtab"'], ["exec", "hi"])
    assert "http://127.0.0.1:" in given[3]
    assert not any("warning" in line for line in err)
    _, _, err = await run("--upstream", upstream.url, str(tmp_path / "cline"), **home)
    assert err[0].startswith("trimtab: warning: Cline takes its server from its own settings")
    assert err[-1].startswith("trimtab: no request came through the proxy; ")


async def test_a_signal_ends_the_command(upstream: FakeUpstream) -> None:
    """Without a terminal, trimtab passes on the keyboard's signal, too. The figures still come."""
    number = signal.SIGINT
    command = (sys.executable, "-c", f"import signal; signal.signal({number:d}, signal.SIG_DFL)\n{WAIT}")
    process = await start("--upstream", upstream.url, *command)
    assert await process.stdout.readline() == b"begun\n"
    process.send_signal(number)
    _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 128 + number
    assert b"no request came" in err


@asynccontextmanager
async def in_terminal(*arguments: str) -> AsyncIterator[tuple[Process, asyncio.StreamReader, int]]:
    """Run `trimtab wrap` as the foreground of a new terminal. Yields the process, the screen and the keyboard."""
    ours, theirs = pty.openpty()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(ours), "rb", buffering=0)
    )
    become = "os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    lead = f"import fcntl, os, sys, termios; {become}"
    wrapped = (sys.executable, "-m", "trimtab", "wrap", "--set", "store=memory", *arguments)
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", lead, *wrapped, **streams, env=environment())
    os.close(theirs)
    try:
        yield process, reader, ours
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        transport.close()
        os.close(ours)


async def test_the_keyboard_of_the_terminal_belongs_to_the_command(upstream: FakeUpstream) -> None:
    """It reads what is typed, sees a terminal, gets Ctrl-C exactly once, and may go on after it."""
    code = (
        "import os, select, signal, socket, sys\n"
        "woken, wake = socket.socketpair()\n"
        "wake.setblocking(False)\n"
        "signal.set_wakeup_fd(wake.fileno())\n"
        "caught = []\n"
        "signal.signal(signal.SIGINT, lambda *_: (caught.append(1), print('caught', len(caught), flush=True)))\n"
        "print('terminal', all(map(os.isatty, (0, 1, 2))), flush=True)\n"
        "select.select([woken], [], [])\n"  # a read that begins just after the signal would not be interrupted
        "print('read', sys.stdin.readline().strip(), flush=True)\n"
        "print('at the end', len(caught), flush=True)\n"
        "sys.exit(5)\n"
    )
    async with in_terminal("--upstream", upstream.url, sys.executable, "-c", code) as (process, screen, keyboard):

        async def see(text: str) -> None:
            await asyncio.wait_for(screen.readuntil(text.encode()), 30)

        await see("terminal True\r\n")
        os.write(keyboard, b"\x03")
        await see("caught 1\r\n")
        os.write(keyboard, b"word\n")
        await see("read word\r\n")
        await see("at the end 1\r\n")
        await see("trimtab: no request came")
        assert await asyncio.wait_for(process.wait(), 30) == 5


# A command in the terminal of this process; signals and a terminal are tested with `trimtab wrap`.


async def test_the_status_is_that_of_a_shell() -> None:
    """The environment is the given one: nothing of this process's own is added."""
    code = "import os; raise SystemExit(7 if os.environ.get('WHERE') == 'there' and 'HOME' not in os.environ else 1)"
    assert await run_child([sys.executable, "-c", code], {"WHERE": "there"}) == 7
    killed = "import os; os.kill(os.getpid(), 9)"
    assert await run_child([sys.executable, "-c", killed], os.environ) == 128 + 9


async def test_a_command_that_cannot_be_run_says_why(tmp_path) -> None:
    """The statuses are those of a shell."""
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for command, status in ((str(tmp_path / "absent"), 127), (str(plain), 126)):
        with pytest.raises(CannotRunError, match=command) as caught:
            await run_child([command], os.environ)
        assert caught.value.status == status


async def test_a_signal_that_comes_before_the_command_has_started_reaches_it(monkeypatch) -> None:
    start = asyncio.create_subprocess_exec

    async def hear_first(*arguments: object, **options: object) -> asyncio.subprocess.Process:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        return await start(*arguments, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", hear_first)
    code = "import signal; signal.alarm(30); signal.pause()"
    assert await run_child([sys.executable, "-c", code], os.environ) == 128 + signal.SIGTERM


# The environment of a wrapped command, and the upstreams of its clients.

OPENAI, ANTHROPIC = "https://api.openai.com/v1", "https://api.anthropic.com/v1"
AZURE = "https://ours.openai.azure.com/openai/v1"
LOCAL = "http://127.0.0.1:8000/v1"


GIVEN: tuple[tuple[str, dict[str, str]], ...] = (
    *((url, {}) for url in (OPENAI, ANTHROPIC, AZURE, LOCAL)),
    (OPENAI, {"OPENAI_BASE_URL": f"{LOCAL}/"}),
    (OPENAI, {"OPENAI_API_BASE": LOCAL}),
    (OPENAI, {"OPENAI_BASE_URL": "", "ANTHROPIC_BASE_URL": "https://gate.test/a"}),
    (OPENAI, {"ANTHROPIC_API_BASE": "https://gate.test/v1"}),
    (OPENAI, {"AZURE_OPENAI_ENDPOINT": "https://ours.openai.azure.com/"}),
    (OPENAI, {"AZURE_OPENAI_ENDPOINT": "https://ours.openai.azure.com/", "OPENAI_API_KEY": "k"}),
)


def test_each_family_has_the_upstream_that_the_configuration_or_a_variable_names() -> None:
    """A command that worked still asks the same server. A provider's own host gets no other provider's key.

    A host that is not known may serve both dialects. The client for Node prefers OPENAI_BASE_URL to Azure's variable:
    that stays unset unless there is a key for it.
    """
    told = {}
    for url, variables in GIVEN:
        config = load_config(settings=() if url == OPENAI else (f"upstream.base_url={url}",), environment={})
        ways = choose_destinations(config, variables)
        lines = [f"{[one.name for one in way.families]}: {way.base_url} {way.is_configured}" for way in ways]
        told[f"{url} {variables or ''}"] = "\n".join(lines)
    check_golden("commands/wrap-upstreams", told)


def test_the_key_of_the_configuration_goes_to_no_other_server() -> None:
    """The forward proxy and the authorities hold for every server."""
    config = load_config(settings=["upstream={api_key: PLANTED, proxy: direct}"], environment={})
    (one, other) = choose_destinations(config, {"OPENAI_BASE_URL": LOCAL})
    for way, url in ((one, LOCAL), (other, ANTHROPIC)):
        (setting,) = way.write_setting(config)
        assert "PLANTED" not in setting
        upstream = load_config(settings=["upstream.api_key=PLANTED", setting], environment={}).upstream
        assert (upstream.base_url, upstream.api_key, upstream.proxy) == (url, None, "direct")


def test_every_variable_that_clients_read_leads_to_the_proxy() -> None:
    """Anthropic's has no /v1. A variable of LiteLLM is set only if it was set before. The rest stays.

    A forward proxy does not get the requests to this machine; clients read either spelling of the variable.
    """
    urls = [(Destination(url, (family,), is_configured=False), f"http://{family.name}") for url, family in FAMILIES]
    befores = (
        {"AZURE_API_BASE": "https://ours.openai.azure.com", "HOME": "/home/us", "OPENAI_API_KEY": "k"},
        {"HTTPS_PROXY": "http://forward.test:3128"},
        {"http_proxy": "http://forward.test:3128", "no_proxy": "a.test,localhost"},
        {"HTTPS_PROXY": ""},
    )
    told = {str(before): "\n".join(map(str, sorted(write_environment(before, urls).items()))) for before in befores}
    check_golden("commands/wrap-environment", told)


FAMILIES = ((OPENAI, Family.OPENAI), (ANTHROPIC, Family.ANTHROPIC), (AZURE, Family.AZURE))
