"""The load generator and the fake upstream: in C, compiled at first use; without a compiler, in Python.

Law: both forms take the same arguments and print the same. Their figures do not compare, so the report names the form.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

_SOURCES = Path(__file__).with_name("native")
_BUILT = Path(__file__).parents[2] / "build" / "bench"
_FLAGS = ("-O2", "-Wall")


def find_native(name: str, *, compilers: tuple[str, ...] = ("cc", "gcc", "clang")) -> list[str]:
    """The command of `generator` or `upstream`. Raises subprocess.CalledProcessError if the source does not compile."""
    compiler = next(filter(None, map(shutil.which, compilers)), None)
    if compiler is None:
        return [sys.executable, "-m", f"bench.harness.plain_{name}"]
    source = _SOURCES / f"{name}.c"
    # The name contains the hash of the source, so that a program of an older source is never run.
    content = source.read_bytes() + (_SOURCES / "wire.h").read_bytes()
    program = _BUILT / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}"
    if not program.exists():
        _BUILT.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(".new")
        subprocess.run([compiler, *_FLAGS, "-o", unfinished, source], check=True)
        unfinished.rename(program)
    return [str(program)]


def describe_native(command: list[str]) -> str:
    """The form that is used, in two words."""
    return "in Python" if command[0] == sys.executable else "in C"
