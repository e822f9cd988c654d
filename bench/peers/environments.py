"""The peers' virtual environments, and how a module of this folder runs in one: JSON lines in, JSON lines out."""

import base64
import hashlib
import os
import subprocess
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from trimtab.proxy.compaction.tokenizers.exact import read_ranks

_ROOT = Path(__file__).parents[2]
PEERS = _ROOT / ".bench-peers"
"""The folder of the environments, unless `install` is given another one."""
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
    "HEADROOM_TELEMETRY": "off",
    "HEADROOM_UPDATE_CHECK": "off",
}
"""Environment variables that keep the peers from downloading or reporting anything."""
_VOCABULARIES_URL = "https://openaipublic.blob.core.windows.net/encodings/"
_SHOWN_CHARS = 2000


class MissingPeerError(RuntimeError):
    """A peer is not installed."""


def find_program(folder: Path, environment: str, program: str = "") -> Path:
    """A program of a peer's environment, by default with the peer's name. Raises MissingPeerError."""
    path = folder / environment / "bin" / (program or environment)
    if not path.exists():
        raise MissingPeerError(environment)
    return path


def ask_peer(
    python: Path,
    module: str,
    *arguments: str,
    lines: bytes,
    own: Mapping[str, str] | None = None,
    seconds: float | None = None,
) -> list[bytes]:
    """Run a module of this folder with a peer's Python and these additional variables; return the lines it prints.

    Raises RuntimeError with the end of its standard error if it fails, and subprocess.TimeoutExpired if it takes longer
    than `seconds`.
    """
    finished = subprocess.run(
        [str(python), "-m", f"bench.peers.{module}", *arguments],
        input=lines,
        capture_output=True,
        # The repository is not installed in a peer's environment.
        env={**os.environ, **OFFLINE, "PYTHONPATH": str(_ROOT), **(own or {})},
        timeout=seconds,
        check=False,
    )
    if finished.returncode:
        said = finished.stderr.decode("utf-8", "replace")[-_SHOWN_CHARS:]
        message = f"bench.peers.{module} ended with status {finished.returncode} in {python}: {said}"
        raise RuntimeError(message)
    return finished.stdout.splitlines()


def write_vocabulary(folder: Path, vocabulary: str = "o200k_base") -> Path:
    """Write a tiktoken cache folder with one vocabulary: Headroom compresses nothing if it cannot fetch one."""
    packed = resources.files("trimtab.proxy.compaction").joinpath("vocabulary", f"{vocabulary}.zst")
    ranks = read_ranks(packed.read_bytes())
    cache = folder / "vocabulary"
    cache.mkdir(exist_ok=True)
    # The file name that tiktoken expects; it also checks the hash of the content.
    name = hashlib.sha1(f"{_VOCABULARIES_URL}{vocabulary}.tiktoken".encode(), usedforsecurity=False).hexdigest()
    lines = (b"%b %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items())
    cache.joinpath(name).write_bytes(b"".join(lines))
    return cache
