"""A process that is a fork tells the same of itself as one that was executed."""

import asyncio
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import orjson
import pytest
from programs import starts
from programs.starts import PROGRAM, Forked, start_module

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each process is executed")

TELL = """
import gc, json, os, pathlib, signal, sys, threading
print(json.dumps({
    "parent": os.getppid(),
    "group": os.getpgrp(),
    "session": os.getsid(0),
    "arguments": sys.argv,
    "main": sys.modules["__main__"].__spec__.name,
    "environment": str(dict(os.environb)),
    "directory": os.getcwd(),
    "path": sys.path,
    "given": sys.stdin.read(),
    "streams": [(one.line_buffering, one.encoding, one.errors, one.isatty()) for one in (sys.stdout, sys.stderr)],
    "descriptors": [number for number in range(256) if os.path.exists(f"/proc/self/fd/{number}")],
    "signals": {number: repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "threads": threading.active_count(),
    "children": pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text(),
    "collects": (gc.isenabled(), gc.get_threshold()),
}), flush=True)
"""


BOTH = pytest.mark.parametrize("program", [sys.executable, PROGRAM], ids=["executed", "forked"])


@pytest.fixture(scope="module", autouse=True)
def _module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A module that runs its last argument; `python -m` finds it, and so does a server of its own."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "run_argument.py").write_text("import sys\nexec(sys.argv.pop())\n")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        monkeypatch.setattr(starts, "_servers", defaultdict(starts._Server))
        yield


async def _start(program: str, *arguments: str, **options: object) -> asyncio.subprocess.Process:
    streams = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
    return await start_module(program, "run_argument", *arguments, **streams, **options)


async def test_a_fork_tells_the_same_of_itself_as_what_was_executed(tmp_path: Path) -> None:
    """Its parent, its arguments, environment, directory, streams, descriptors, signals, threads and children."""
    told = []
    for program in (sys.executable, PROGRAM):
        process = await _start(
            program, "one", "two words", TELL, cwd=tmp_path, env=os.environ | {"OWN": "\udcff", "TZ": "X-3"}
        )
        out, said = await asyncio.wait_for(process.communicate("given ü".encode()), 30)
        assert (process.returncode, said) == (0, b"")
        told.append(orjson.loads(out.splitlines()[0]))

    executed, forked = told
    assert executed == forked
    assert (forked["parent"], forked["directory"], forked["given"]) == (os.getpid(), str(tmp_path), "given ü")


@BOTH
@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("import atexit, sys; atexit.register(lambda: print('last', file=sys.stderr)); sys.exit(7)", 7, "last"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("import os; os.abort()", -signal.SIGABRT, ""),
    ],
)
async def test_it_ends_as_a_program_does(program: str, code: str, status: int, said: str) -> None:
    """Its status is that of its exit, or of its signal."""
    process = await _start(program, code)
    _, told = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, (told.decode().splitlines() or [""])[-1]) == (status, said)


async def test_its_output_ends_with_it() -> None:
    """Neither the server nor a later fork holds its streams open."""
    first = await _start(PROGRAM, "input()")
    later = await _start(PROGRAM, "input()")
    await asyncio.wait_for(first.communicate(b"\n"), 30)
    assert later.returncode is None
    await asyncio.wait_for(later.communicate(b"\n"), 30)


@BOTH
async def test_a_script_finds_what_lies_beside_it(program: str, tmp_path: Path, monkeypatch) -> None:
    """And it leads a session of its own, if it was asked to."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)  # which forbids it, and is set where the wheel is tested
    (tmp_path / "beside.py").write_text("WORD = 'harbour'\n")
    script = tmp_path / "script.py"
    script.write_text("import os, sys\nimport beside\nprint(beside.WORD, sys.argv[1:], os.getsid(0) == os.getpid())\n")
    with patch.object(subprocess, "Popen", Forked):
        process = await asyncio.create_subprocess_exec(
            program, str(script), "one", stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
    out, said = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, out, said) == (0, b"harbour ['one'] True\n", b"")
