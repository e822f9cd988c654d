"""The dialect as a whole: recorded sessions in two dialects."""

from itertools import islice
from typing import Any

import orjson
import pytest
from support.dialects.oddities import NotConvertibleError
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import Dialect, Wire
from support.dialects.spoken.responses import RESPONSES
from support.sessions import read_rows, recorded_files

from trimtab.proxy.compaction.compactor import Compacted, Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.rules.policy import Policy

POLICY = Policy(context_window=32_000)
MAX_SESSIONS = 3
"""Sessions of each file that are compared. Chosen: a few seconds for all files."""


def _compact(dialect: Dialect, session: Wire) -> tuple[bytes, Compacted]:
    compactor, body = Compactor(count_by_heuristic), orjson.dumps({"model": "m", **dialect.convert(session)})
    return body, compactor.apply(compactor.plan(dialect.codec.read(body), POLICY), None)


def _check_session(session: Wire) -> None:
    (_, chat), (body, ours) = _compact(CHAT, session), _compact(RESPONSES, session)
    assert chat.decisions == ours.decisions
    assert (chat.original_tokens, chat.sent_tokens) == (ours.original_tokens, ours.sent_tokens)
    assert RESPONSES.check_request(body, ours.body, last_may_shrink=True) == []


@pytest.mark.parametrize("file", recorded_files("conversations"), ids=lambda file: file.stem)
def test_recorded_sessions_get_the_same_decisions_in_both_dialects(file: Any) -> None:
    """And cost the same: whoever counts, the dialect makes no difference."""
    for session in islice(read_rows(file), MAX_SESSIONS):
        try:
            _check_session(session)
        except NotConvertibleError:
            continue
