"""The peers that are libraries, each in its own environment, called through JSON lines.

Law: trimtab's environment imports nothing of theirs. A library returns the requests that it would have sent, as indexes
of the client's messages and as new messages; they are priced here like all others.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson

from bench.material.workload import MODEL, Session
from bench.peers.environments import ask_peer, find_program
from bench.sessions.ledger import SessionLedger
from bench.sessions.prompts import Part, count_text, read_fixed, read_part
from bench.sessions.replaying.replay import Replayed, ReplayOptions

LIBRARIES = ("langchain", "langchain-untrimmed", "litellm")
WORKERS = 2
SESSION_SECONDS = 60.0
"""Chosen: a session that takes a library longer is skipped, and the report says so."""


def run_library(
    name: str, folder: Path, sessions: Sequence[Session], limit_tokens: int, options: ReplayOptions
) -> list[Replayed]:
    """What a library does with sessions. Raises MissingPeerError."""
    asked = ask_library(name, folder, sessions, limit_tokens, options)
    return [_price(session, answer, options) for session, answer in asked]


def ask_library(
    name: str, folder: Path, sessions: Sequence[Session], limit_tokens: int, options: ReplayOptions
) -> list[tuple[Session, bytes]]:
    """What a library would have sent for each session, as JSON (peers/library.py). Raises MissingPeerError."""
    python = find_program(folder, name.partition("-")[0], "python")
    arguments = (name, str(limit_tokens), str(options.note_tokens), str(SESSION_SECONDS))
    order = sorted(sessions, key=lambda session: -len(session.stops) * sum(map(len, session.messages)))
    shares = [order[number::WORKERS] for number in range(min(WORKERS, len(order)))]
    asking = [b"".join(map(_write_line, share)) for share in shares]
    with ThreadPoolExecutor(WORKERS) as pool:
        parts = pool.map(lambda lines: ask_peer(python, "library", *arguments, lines=lines), asking)
        answers = [answer for part in parts for answer in part]
    return list(zip((session for share in shares for session in share), answers, strict=True))


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
    enter_calls(session, answer, ledger)
    return Replayed(session, tuple(ledger.calls), complete=answer["complete"])


def enter_calls(session: Session, answer: Mapping[str, Any], ledger: SessionLedger) -> None:
    """Enter what a library would have sent for a session, including the calls for its summaries."""
    fixed = read_fixed(MODEL, session.tools)
    bare = read_fixed(MODEL, b"")
    for turn in answer["turns"]:
        for prompt, note in turn["summaries"]:
            ledger.add_summary((bare, _read({"role": "user", "content": prompt}, session)), count_text(note))
        ledger.add_turn((fixed, *(_read(item, session) for item in turn["messages"])))


def _read(item: int | dict[str, object], session: Session) -> Part:
    """A message that the library sends: an index of the client's messages, or a message of its own."""
    return read_part(session.messages[item] if isinstance(item, int) else orjson.dumps(item))
