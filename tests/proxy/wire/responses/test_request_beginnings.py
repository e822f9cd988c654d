"""A body that continues an earlier one is read, decoded and written as if it came alone."""

from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.responses.codec import RESPONSES
from trimtab.proxy.wire.transcript.beginnings import Begun
from trimtab.rules.conversation import Conversation, Role

ITEMS = st.lists(
    st.sampled_from(
        [
            b'{"role":"user","content":"go on"}',
            b'{ "content" : "h\xc3\xa9" , "role" : "developer" }',
            b'{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}',
            b'{"type":"reasoning","summary":[],"encrypted_content":"AAAA"}',
            b'{"type":"function_call","call_id":"c","name":"ls","arguments":"{}"}',
            b'{"type":"function_call_output","call_id":"c","output":"a, \\"b\\" ]}"}',
            b'{"type":"compaction","encrypted_content":"AAAA"}',
            b'{"type":"other"}',
            b"{}",
        ]
    ),
    min_size=1,
    max_size=5,
)
SEPARATORS = st.sampled_from([b",", b", ", b" ,\n"])


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of a few bytes are kept, too."""
    monkeypatch.setattr("trimtab.proxy.wire.transcript.body.MIN_BYTES", 0)


def _shorten(conversation: Conversation) -> Conversation:
    """A change that depends on each message alone, as the rules on results do."""
    messages = [
        replace(one, texts=("cut",), edited=True) if one.role is Role.TOOL else one for one in conversation.messages
    ]
    return conversation.edit(messages)


@given(st.lists(ITEMS, min_size=2, max_size=5), SEPARATORS, st.sampled_from([b"", b'"instructions":"Be brief.",']))
def test_a_session_goes_on_as_if_each_body_came_alone(turns, separator, head) -> None:
    begun: Begun | None = None
    counting = Counting(count_by_heuristic, make_known())
    for items in accumulate(turns, lambda one, other: [*one, *other]):
        body = b"{%b" % head + b'"input":[' + separator.join(items) + b'],"model":"m"}'
        request, alone = RESPONSES.read(body, begun), RESPONSES.read(body)
        assert request == alone
        on = RESPONSES.decode(request, counting)
        whole = RESPONSES.decode(alone, Counting(count_by_heuristic, make_known()))
        assert on == whole
        written = b"".join(RESPONSES.encode(request, on, _shorten(on)))
        assert written == b"".join(RESPONSES.encode(alone, whole, _shorten(whole)))
        assert request.beginning is not None
        begun = Begun(request.beginning, len(request.raws))


def test_only_the_last_unit_is_decoded_again() -> None:
    """A message of the model may still grow; what is before it is settled."""
    user, said = b'{"role":"user","content":"a"}', b'{"role":"assistant","content":"b"}'
    call = b'{"type":"function_call","call_id":"c","name":"ls","arguments":"{}"}'
    counting = Counting(count_by_heuristic, make_known())
    first = RESPONSES.read(b'{"input":[%b,%b]}' % (user, said))
    RESPONSES.decode(first, counting)
    assert first.beginning is not None
    longer = RESPONSES.read(b'{"input":[%b,%b,%b]}' % (user, said, call), Begun(first.beginning, 2))
    assert RESPONSES.uncounted_bytes(longer, counting) == len(said + b"," + call)
    assert [len(message.tool_calls) for message in RESPONSES.decode(longer, counting).messages] == [0, 1]
