"""Runs a block of the documentation as a reader would, against the fake upstream."""

import os
import re
import sys
from pathlib import Path

from programs.processes import Ended, run_program
from programs.redis_server import find_free_port
from support.examples.blocks import Block

OPENAI = "https://api.openai.com/v1"
_PORT = re.compile(r"(?<=[\w\].]):8790\b")
"""trimtab's default port after a host name. The same number elsewhere is data."""
SECONDS = 60.0
_END_ALL = "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n"
"""Ends background processes of the block: they would hold its output open."""


def replace_addresses(text: str, upstream: str, port: int) -> str:
    """The text with the fake upstream instead of OpenAI, and a free port instead of trimtab's default port."""
    return _PORT.sub(f":{port}", text.replace(OPENAI, upstream))


async def run_block(block: Block, upstream: str, folder: Path) -> str | None:
    """Run a block in an empty folder. Returns the problem; None if it ends and prints as the page says."""
    port = find_free_port()
    text = replace_addresses(block.text, upstream, port)
    command = [sys.executable, "-c", text] if block.language == "python" else ["bash", "-ec", _END_ALL + text]
    environment = {
        "OPENAI_API_KEY": "test-key",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TRIMTAB_LISTEN": f"127.0.0.1:{port}",
        "TRIMTAB_UPSTREAM": upstream,
        "TRIMTAB_PRICES": "{}",  # OpenAI charges for tokens, and its stand-in is local
    }
    work = folder / "work"
    work.mkdir()
    try:
        ended = await run_program(command, folder, environment, directory=work, limit_seconds=SECONDS)
    except TimeoutError:
        return f"it did not end within {SECONDS:g} seconds"
    if ended.status != 0:
        return f"it ended with status {ended.status}:\n{ended.out}{ended.err}"
    return None if block.output is None else find_missing(replace_addresses(block.output, upstream, port), ended)


def find_missing(expected: str, ended: Ended) -> str | None:
    """The printed text, if it does not contain the expected words in order; else None. `...` stands for any text.

    The last of the words ends a line.
    """
    parts = [r"\s+".join(map(re.escape, part.split())) for part in expected.split("...")]
    printed = f"{ended.out}\n{ended.err}"
    if re.search(r".*?".join(parts) + r"\s*$", printed, re.DOTALL | re.MULTILINE):
        return None
    return f"it did not print what the page says, but:\n{printed}"
