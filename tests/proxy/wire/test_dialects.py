"""The dialects that the proxy speaks."""

from dataclasses import replace
from itertools import accumulate

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dialects.spoken.all_dialects import DIALECTS
from support.dialects.spoken.dialect import Dialect
from support.gemini.codec import GEMINI
from support.gemini.spoken import SPOKEN
from support.sessions import make_session

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Counting, Request
from trimtab.proxy.wire.dialects import CODECS, by_ending, find_codec, is_bare
from trimtab.proxy.wire.transcript.body import PrefixMatch, UndecodableError
from trimtab.rules.conversation import Conversation, Role

CODECS_BY_ENDING = by_ending((*CODECS, GEMINI))
BEFORE = ("", "/v1", "/api/v1", "/openai/deployments/my.model", "/v1/projects/p/endpoints/openapi", "//v1")


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_path_has_the_dialect_of_its_ending(before: str, slash: str) -> None:
    """Whatever precedes the ending, and with or without a slash after it."""
    for codec in CODECS_BY_ENDING.values():
        assert find_codec(CODECS_BY_ENDING, before + codec.ending + slash) is codec


@pytest.mark.parametrize(
    "path",
    [
        "/v1/completions",
        "/v1/chat/completions/1",
        "/v1/models/m:GenerateContent",
        "/v1/models/m:generateContent/1",
    ],
)
def test_any_other_path_has_no_dialect(path: str) -> None:
    """Part of a segment is no ending, and neither is a path below it."""
    assert find_codec(CODECS_BY_ENDING, path) is None


def test_a_message_of_a_thread_is_no_conversation() -> None:
    """The Assistants API adds one message at a path that ends as a conversation's does."""
    codecs = by_ending(CODECS)
    assert find_codec(codecs, "/anthropic/v1/messages") is not None
    for path in ("/v1/threads/thread_1/messages", "/openai/threads/thread_1/messages/"):
        assert find_codec(codecs, path) is None


def test_the_configuration_names_the_dialect_of_other_paths() -> None:
    """It wins over the ending. A dialect that the proxy does not speak claims nothing."""
    named = {"/llm/generate": "gemini", "/odd:generateContent": "chat", "/new": "unknown"}

    assert find_codec(CODECS_BY_ENDING, "/llm/generate/", named) is GEMINI
    assert find_codec(CODECS_BY_ENDING, "/odd:generateContent", named) is CHAT
    assert find_codec(CODECS_BY_ENDING, "/new", named) is None
    assert find_codec(CODECS_BY_ENDING, "/llm/generate/x", named) is None


@pytest.mark.parametrize(
    ("path", "is_it"),
    [
        ("/chat/completions", True),
        ("/v1/chat/completions/", True),
        ("/v1/v1/chat/completions", False),
        ("/v1chat/completions", False),
    ],
)
def test_a_bare_path_has_at_most_the_version_before_its_ending(path: str, *, is_it: bool) -> None:
    """Only such a path belongs under base_url."""
    assert is_bare(CHAT, path) is is_it


def test_two_dialects_cannot_claim_one_ending() -> None:
    """Otherwise the order of dialects would decide how a request is read."""
    with pytest.raises(ValueError, match=":generateContent is claimed by gemini and by gemini"):
        by_ending((GEMINI, GEMINI))


def test_a_dialect_has_a_path_of_its_own_to_ask_at() -> None:
    for codec in CODECS:
        assert is_bare(codec, codec.path)


# In each dialect, a body that continues an earlier one is read, decoded and written as if it came alone.

ODD = [
    b'{"role":"user","content":"h\xc3\xa9 \\"b\\" ]}"}',
    b'{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},{"type":"other"}]}',
    b'{"type":"compaction","encrypted_content":"AAAA"}',
]
SEPARATORS = st.sampled_from([b",", b", ", b" ,\n"])
HEADS = st.sampled_from([b"", b'"system":"Be brief.","instructions":"Be brief.",'])
ENDS = st.sampled_from([b'],"model":"m"}', b' ] , "max_tokens":9, "system":"s", "instructions":"i" }'])


def draw_turns(dialect: Dialect) -> st.SearchStrategy[list[list[bytes]]]:
    session = dialect.convert(make_session(3, result_words=8))[dialect.transcript]
    raws = [orjson.dumps(element, option=option) for element in session for option in (0, orjson.OPT_INDENT_2)]
    return st.lists(st.lists(st.sampled_from([*raws, *ODD]), min_size=1, max_size=5), min_size=2, max_size=5)


def shorten(conversation: Conversation) -> Conversation:
    messages = [
        replace(one, texts=("cut",), edited=True) if one.role is Role.TOOL else one for one in conversation.messages
    ]
    return conversation.edit(messages)


def see(request: Request, counting: Counting) -> tuple[Conversation, bytes] | None:
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
