"""A body that continues an earlier one is read, decoded and written as if it came alone."""

import pytest

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import ELEMENT_BYTES, Counting
from trimtab.proxy.wire.responses.codec import RESPONSES
from trimtab.proxy.wire.transcript.body import PrefixMatch


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of a few bytes are kept, too."""
    monkeypatch.setattr("trimtab.proxy.wire.transcript.body.MIN_BYTES", 0)


def test_only_the_last_unit_is_decoded_again() -> None:
    """A message of the model may still grow; what is before it is settled."""
    user, said = b'{"role":"user","content":"a"}', b'{"role":"assistant","content":"b"}'
    call = b'{"type":"function_call","call_id":"c","name":"ls","arguments":"{}"}'
    counting = Counting(count_by_heuristic, make_known())
    first = RESPONSES.read(b'{"input":[%b,%b]}' % (user, said))
    RESPONSES.decode(first, counting)
    assert first.kept_body is not None
    longer = RESPONSES.read(b'{"input":[%b,%b,%b]}' % (user, said, call), PrefixMatch(first.kept_body, 2))
    assert RESPONSES.uncounted_bytes(longer, counting) == len(said + b"," + call) + ELEMENT_BYTES
    assert [len(message.tool_calls) for message in RESPONSES.decode(longer, counting).messages] == [0, 1]
