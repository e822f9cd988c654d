"""The dialects that the proxy speaks."""

import pytest
from support.gemini.codec import GEMINI

from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.dialects import CODECS, by_ending, find_codec, is_bare

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

    class Messages(type(GEMINI)):  # type: ignore[misc]
        """A dialect at `/messages`."""

        ending = "/messages"

    codec = Messages()
    codecs = by_ending((codec,))
    assert find_codec(codecs, "/anthropic/v1/messages") is codec
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
        ("/v1/chat/completions", True),
        ("/v1/chat/completions/", True),
        ("/api/v1/chat/completions", False),
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
    """Summaries are requested at that path."""
    for codec in CODECS:
        assert is_bare(codec, codec.path)
