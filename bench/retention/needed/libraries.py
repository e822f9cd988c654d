"""LangChain's middleware as a contestant: its environment returns what it would have forwarded.

Law: it runs by the adapter of bench/sessions; the note is made of the prompt's words (`words`). If it is not installed,
the report says so.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from bench.material.workload import Session
from bench.retention.needed.cases import RULES, Case, Sent
from bench.retention.needed.measure import Measured, measure_sent
from bench.sessions.ledger import SessionLedger
from bench.sessions.libraries import ask_library, enter_calls
from bench.sessions.replaying.replay import ReplayOptions
from bench.sessions.replaying.summarisers import NOTE_TOKENS

LANGCHAIN = ("langchain", "langchain-untrimmed")


def measure_library(case: Case, sessions: Sequence[Session], folder: Path) -> list[Measured]:
    """Measure what a library does with the sessions, in their order. Raises MissingPeerError."""
    options = ReplayOptions(RULES, NOTE_TOKENS)
    answers = ask_library(case.contestant, folder, sessions, case.window.limit_tokens, options)
    by_id = {session.id: _measure(session, answer) for session, answer in answers}
    return [by_id[session.id] for session in sessions]


def _measure(session: Session, line: bytes) -> Measured:
    answer = orjson.loads(line)
    ledger = SessionLedger(RULES)
    enter_calls(session, answer, ledger)
    turns = (turn["messages"] for turn in answer["turns"])
    sent = (
        Sent(stop, [session.messages[item] if isinstance(item, int) else orjson.dumps(item) for item in messages])
        for stop, messages in zip(session.stops, turns, strict=False)
    )
    return replace(measure_sent(session, sent, ledger), complete=answer["complete"])
