"""In each dialect, a body that continues an earlier one is read, decoded and written as if it came alone."""

from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dialects.spoken.all_dialects import DIALECTS
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import Dialect
from support.dialects.spoken.messages import MESSAGES
from support.dialects.spoken.responses import RESPONSES
from support.gemini.spoken import SPOKEN

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import Counting, Request
from trimtab.proxy.wire.transcript.body import PrefixMatch, UndecodableError
from trimtab.rules.conversation import Conversation, Role

SHARED = [
    b'{"role":"user","content":"go on"}',
    b'{ "content" : "h\xc3\xa9" , "role" : "user" }',
    b'{"role":"assistant","content":"a, \\"b\\" ]}"}',
    b'{"role":"user","content":[{"type":"text","text":"x"},{"type":"other"}]}',
]
ELEMENTS = {
    CHAT: [
        b'{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"ls","arguments":"{}"}}]}',
        b'{"role":"tool","tool_call_id":"c","content":"out"}',
        b'{"role":"developer","content":"late"}',
        b'{"role":"tool","tool_call_id":"c","content":"a, \\"b\\" ]}"}',
    ],
    RESPONSES: [
        b'{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}',
        b'{"type":"reasoning","summary":[],"encrypted_content":"AAAA"}',
        b'{"type":"function_call","call_id":"c","name":"ls","arguments":"{}"}',
        b'{"type":"function_call_output","call_id":"c","output":"a, \\"b\\" ]}"}',
        b'{ "content" : "h\xc3\xa9" , "role" : "developer" }',
        b'{"type":"compaction","encrypted_content":"AAAA"}',
        b'{"type":"other"}',
        b"{}",
    ],
    SPOKEN: [
        b'{"role":"user","parts":[{"text":"go on"}]}',
        b'{"role":"model","parts":[{"text":"t","thought":true},{"functionCall":{"id":"c","name":"ls","args":{}}}]}',
        b'{"parts":[{"functionResponse":{"id":"c","name":"ls","response":{"output":"out"}}},{"text":"and"}]}',
        b'{ "parts" : [{"functionResponse":{"name":"ls","response":{}}}] , "role" : "user" }',
    ],
    MESSAGES: [
        (
            b'{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"AAAA"},'
            b'{"type":"tool_use","id":"c","name":"ls","input":{}},{"type":"tool_use","id":"d","name":"ls","input":{}}]}'
        ),
        (
            b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"out"},'
            b'{"type":"tool_result","tool_use_id":"d","content":[{"type":"text","text":"two"}]}]}'
        ),
        (
            b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"d","content":"out"},'
            b'{"type":"text","text":"and","cache_control":{"type":"ephemeral"}}]}'
        ),
        b'{"role":"user","content":[{"type":"text","text":"x"},{"type":"tool_result","tool_use_id":"d"}]}',
        b'{"role":"system","content":"hint"}',
    ],
}
SEPARATORS = st.sampled_from([b",", b", ", b" ,\n"])
HEADS = st.sampled_from([b"", b'"system":"Be brief.","instructions":"Be brief.",'])
ENDS = st.sampled_from([b'],"model":"m"}', b' ] , "max_tokens":9, "system":"s", "instructions":"i" }'])


def draw_turns(dialect: Dialect) -> st.SearchStrategy[list[list[bytes]]]:
    """The elements that each request adds."""
    elements = st.lists(st.sampled_from([*SHARED, *ELEMENTS[dialect]]), min_size=1, max_size=5)
    return st.lists(elements, min_size=2, max_size=5)


def shorten(conversation: Conversation) -> Conversation:
    """A change that depends on each message alone, as the rules on results do."""
    messages = [
        replace(one, texts=("cut",), edited=True) if one.role is Role.TOOL else one for one in conversation.messages
    ]
    return conversation.edit(messages)


def see(request: Request, counting: Counting) -> tuple[Conversation, bytes] | None:
    """The decoded transcript, and the body with shorter results; None if it cannot be decoded."""
    try:
        conversation = request.codec.decode(request, counting)
    except UndecodableError:
        return None
    return conversation, b"".join(request.codec.encode(request, conversation, shorten(conversation)))


@pytest.mark.parametrize(
    ("dialect", "turns"), [(dialect, draw_turns(dialect)) for dialect in (*DIALECTS, SPOKEN)], ids=str
)
def test_a_session_goes_on_as_if_each_body_came_alone(dialect, turns, monkeypatch) -> None:
    """Bodies of a few bytes are kept, too."""
    monkeypatch.setattr("trimtab.proxy.wire.transcript.body.MIN_BYTES", 0)
    codec = dialect.codec

    @given(turns, HEADS, SEPARATORS, ENDS)
    def check(drawn: list[list[bytes]], head: bytes, separator: bytes, end: bytes) -> None:
        begun: PrefixMatch | None = None
        counting = Counting(count_by_heuristic, make_known())
        for elements in accumulate(drawn, lambda one, other: [*one, *other]):
            body = b'{%b"%b":[' % (head, dialect.transcript.encode()) + separator.join(elements) + end
            request, alone = codec.read(body, begun), codec.read(body)
            assert request == alone
            assert see(request, counting) == see(alone, Counting(count_by_heuristic, make_known()))
            assert request.kept_body is not None
            begun = PrefixMatch(request.kept_body, len(request.raws))

    check()
