"""In each dialect, a body that continues an earlier one is read, decoded and written as if it came alone."""

from dataclasses import replace
from itertools import accumulate

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dialects.spoken.all_dialects import DIALECTS
from support.dialects.spoken.dialect import Dialect
from support.gemini.spoken import SPOKEN
from support.sessions import make_session

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import Counting, Request
from trimtab.proxy.wire.transcript.body import PrefixMatch, UndecodableError
from trimtab.rules.conversation import Conversation, Role

ODD = [
    b'{"role":"user","content":"h\xc3\xa9 \\"b\\" ]}"}',
    b'{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},{"type":"other"}]}',
    b'{"type":"compaction","encrypted_content":"AAAA"}',
]
SEPARATORS = st.sampled_from([b",", b", ", b" ,\n"])
HEADS = st.sampled_from([b"", b'"system":"Be brief.","instructions":"Be brief.",'])
ENDS = st.sampled_from([b'],"model":"m"}', b' ] , "max_tokens":9, "system":"s", "instructions":"i" }'])


def draw_turns(dialect: Dialect) -> st.SearchStrategy[list[list[bytes]]]:
    """The elements that each request adds."""
    session = dialect.convert(make_session(3, result_words=8))[dialect.transcript]
    raws = [orjson.dumps(element, option=option) for element in session for option in (0, orjson.OPT_INDENT_2)]
    return st.lists(st.lists(st.sampled_from([*raws, *ODD]), min_size=1, max_size=5), min_size=2, max_size=5)


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
