"""The peers that are libraries: each runs in an environment of its own, asked through JSON lines.

Law: our own environment imports nothing of theirs. Which request they would have sent comes back as indexes of the
client's messages and as new messages; it is priced here, as everybody's.
"""

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
from ledger import SessionLedger
from prompts import Part, count_text, read_fixed, read_part
from replay import Replayed, ReplayOptions
from workload import MODEL, Session

PEERS = Path(__file__).parents[1] / ".bench-peers"
LIBRARIES = ("langchain", "langchain-untrimmed", "litellm")
PACKAGES = {
    "langchain": "langchain>=1.4,<2",
    "litellm": "litellm>=1.106,<2",
    "headroom": "headroom-ai[proxy]>=0.42,<0.43",
}
"""By the name of the peer's environment."""
WORKERS = 2
SESSION_SECONDS = 60.0
"""A session that takes a library longer is given up, and said so."""


class MissingPeerError(RuntimeError):
    """A peer is not installed."""


def find_program(folder: Path, environment: str, program: str = "") -> Path:
    """A program of a peer's environment, by default of the same name. Raises MissingPeerError."""
    path = folder / environment / "bin" / (program or environment)
    if not path.exists():
        raise MissingPeerError(environment)
    return path


def run_library(
    name: str, folder: Path, sessions: Sequence[Session], limit_tokens: int, options: ReplayOptions
) -> list[Replayed]:
    """What a library does with sessions. Raises MissingPeerError."""
    python = find_program(folder, name.partition("-")[0], "python")
    script = Path(__file__).with_name("peer_library.py")
    command = [str(python), str(script), name, str(limit_tokens), str(options.note_tokens), str(SESSION_SECONDS)]
    order = sorted(sessions, key=lambda session: -len(session.stops) * sum(map(len, session.messages)))
    shares = [order[number::WORKERS] for number in range(min(WORKERS, len(order)))]
    with ThreadPoolExecutor(WORKERS) as pool:
        answers = [answer for part in pool.map(lambda share: _ask(command, share), shares) for answer in part]
    asked = [session for share in shares for session in share]
    return [_price(session, answer, options) for session, answer in zip(asked, answers, strict=True)]


def _ask(command: Sequence[str], sessions: Sequence[Session]) -> list[bytes]:
    """One line for each session out, one line for each in."""
    lines = b"".join(_write_line(session) for session in sessions)
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LANGSMITH_TRACING": "false"}
    # LiteLLM logs a page for each transcript that it cannot trim.
    finished = subprocess.run(
        command, input=lines, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, check=True
    )
    return finished.stdout.splitlines()


def _write_line(session: Session) -> bytes:
    parts = [read_part(raw) for raw in session.messages]
    fixed_tokens = read_fixed(MODEL, session.tools).tokens
    sizes = orjson.dumps([part.tokens for part in parts])
    return b'{"messages":[%b],"tokens":%b,"fixed_tokens":%d,"stops":%b}\n' % (
        b",".join(session.messages),
        sizes,
        fixed_tokens,
        orjson.dumps(session.stops),
    )


def _price(session: Session, line: bytes, options: ReplayOptions) -> Replayed:
    answer = orjson.loads(line)
    ledger = SessionLedger(options.rules)
    fixed = read_fixed(MODEL, session.tools)
    bare = read_fixed(MODEL, b"")
    for turn in answer["turns"]:
        for prompt, note in turn["summaries"]:
            ledger.add_summary((bare, _read({"role": "user", "content": prompt}, session)), count_text(note))
        ledger.add_turn((fixed, *(_read(item, session) for item in turn["messages"])))
    return Replayed(session, tuple(ledger.calls), complete=answer["complete"])


def _read(item: int | dict[str, object], session: Session) -> Part:
    """A message that the library sends: an index of the client's, or one of its own making."""
    return read_part(session.messages[item] if isinstance(item, int) else orjson.dumps(item))
