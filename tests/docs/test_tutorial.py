"""The tutorial works from its third step on, with its own stand-in for an upstream, and prints what it shows.

The second is a command of the README: tests/docs/test_readme_commands.py runs it.
Law: the commands of both terminals run in the page's order, in one folder. Every line of a `text` block is printed;
only times, ids, paths and what the machine has may differ.
"""

import os
import re
import sys
from pathlib import Path

from programs.processes import run_program
from programs.redis_server import find_free_port
from support.examples.blocks import Block, find_blocks

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
FIRST = "cat > make_request.py"
"""The beginning of the first block that runs here."""
UPSTREAM_PORT, PORT = "9001", "8790"
WINDOW = "8192"
"""Of the stand-in. A request that arrives before the upstream has reported it would get another limit."""
PRELUDE = f"""
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
stop() {{ [ -z "$server" ] || {{ kill $server; wait $server; server=; }}; }}
serve() {{
  stop
  until curl --silent http://127.0.0.1:{UPSTREAM_PORT}/v1/models >/dev/null; do sleep 0.1; done
  trimtab serve --log-format text "$@" 2>> log.txt & server=$!
  until curl --silent http://127.0.0.1:{PORT}/trimtab/api/models | grep --quiet {WINDOW}; do sleep 0.1; done
}}
server=
"""
"""For bash: a server runs in the background, as in a terminal of its own, until the next one. It must end with 0."""
CHANGING = {
    r"^(\d\d:\d\d:\d\d|\d{4}-\S+T\S+) ": "",
    r"\b([0-9a-f]{24}|[0-9a-f]{8}$)": "ID",
    r"dur=[\d.]+|\b[\d.]+m?s\b": "DURATION",
    r"^Date: .*": "Date",
    r"Python/[\d.]+": "Python",
    r"sqlite \S*/summaries": "sqlite summaries",
    r"gives \d+ here, with \d+ cores?": "gives N",
    r"limit is -?\d+": "limit is N",
    r"[─━]+": "─",
    r"\s+": " ",
}
"""Patterns of what differs from run to run, and what is compared instead."""
SECONDS = 300.0


def read_blocks() -> list[Block]:
    """The blocks of the page from FIRST on."""
    blocks = find_blocks(PAGE.read_text("utf-8"), PAGE.name)
    start = next(index for index, block in enumerate(blocks) if block.text.startswith(FIRST))
    return blocks[start:]


def write_script(blocks: list[Block]) -> str:
    """All commands of the blocks as one script. Python is saved as the file that the page names."""
    parts = [PRELUDE]
    for block in blocks:
        if block.language == "python":
            parts.append(f"cat > upstream.py <<'END_OF_FILE'\n{block.text}END_OF_FILE\n")
        elif block.language == "sh":
            parts.append(re.sub(r"^trimtab serve", "serve", block.text, flags=re.MULTILINE))
    return "".join([*parts, "stop\ncat log.txt\n"])


def simplify(line: str) -> str:
    """The line without what differs from run to run."""
    for pattern, instead in CHANGING.items():
        line = re.sub(pattern, instead, line)
    return line.strip()


def is_printed(line: str, printed: list[str]) -> bool:
    """Whether a line of the page is printed. `...` at its end stands for any text."""
    shown = simplify(line.removesuffix("..."))
    return any(shown in one for one in printed)


async def test_the_tutorial_prints_what_it_shows(tmp_path: Path) -> None:
    blocks = read_blocks()
    ports = {UPSTREAM_PORT: str(find_free_port()), PORT: str(find_free_port())}
    script = re.sub("|".join(ports), lambda found: ports[found[0]], write_script(blocks))
    work = tmp_path / "work"
    work.mkdir()
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TRIMTAB_LISTEN": f"127.0.0.1:{ports[PORT]}",
        "COLUMNS": "300",
    }
    ended = await run_program(["bash", "-ec", script], tmp_path, environment, directory=work, limit_seconds=SECONDS)
    assert ended.status == 0, ended.out + ended.err

    back = {f":{port}": f":{shown}" for shown, port in ports.items()}
    output = re.sub("|".join(back), lambda found: back[found[0]], f"{ended.out}\n{ended.err}")
    printed = [simplify(line) for line in output.splitlines()]
    expected = [line for block in blocks if block.language == "text" for line in block.text.splitlines()]
    missing = [line for line in expected if not is_printed(line, printed)]
    assert missing == [], "\n".join(printed)
