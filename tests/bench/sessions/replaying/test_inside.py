"""A session through trimtab in this process."""

from dataclasses import replace

import orjson

from bench.material.workload import Session, make_sessions
from bench.sessions.caches.longest import LongestPrefix
from bench.sessions.ledger import Call, SessionLedger
from bench.sessions.replaying.inside import Trimtab, run_inside
from bench.sessions.replaying.summarisers import write_words
from trimtab.rules.policy import Prices


def run(session: Session) -> list[Call]:
    """The session's calls, at a cache that finds the longest prefix by itself."""
    ledger = SessionLedger(LongestPrefix())
    for sent in run_inside(Trimtab(16000, 2000, (), Prices(), write_words), session, ledger):
        assert sent.body is not None
    return ledger.calls


def mark(message: bytes) -> bytes:
    """The message with the client's mark for the upstream's cache."""
    plain = orjson.loads(message)
    block = {"type": "text", "text": plain["content"], "cache_control": {"type": "ephemeral"}}
    return orjson.dumps({**plain, "content": [block]})


def test_a_clients_marks_change_nothing_at_a_cache_that_needs_none() -> None:
    """Questions for summaries, too, read what the marked requests before them have left in the cache."""
    plain = make_sessions()[2]
    marked = replace(plain, messages=(mark(plain.messages[0]), *plain.messages[1:]))
    calls = run(marked)
    assert calls == run(plain)
    assert any(call.is_summary and call.cached_tokens > 4000 for call in calls)
