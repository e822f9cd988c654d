"""The parameters of a question that an upstream refuses are found in its error, however it is written."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import ODD, dump

from trimtab.proxy.wire.answering import Question
from trimtab.proxy.wire.dialects import CODECS

CHAT, RESPONSES, MESSAGES, _ = CODECS
QUESTION = Question("gpt-5-2025-08-07", 4000, 0.2)
OPENAI = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."


@pytest.mark.parametrize("codec", [CHAT, RESPONSES, MESSAGES], ids=lambda codec: codec.name)
@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "Unsupported value", "param": "temperature", "code": "unsupported_value"}},
        {"error": {"message": "Unsupported parameter: 'temperature' is not supported with this model."}},
        {"message": "temperature: Extra inputs are not permitted"},
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "temperature"], "msg": "Extra inputs", "input": 0.2}]},
        {"errors": {"temperature": ["This field is not allowed."]}},
        [{"error": {"code": 400, "message": "Invalid value at 'generation_config.temperature'"}}],
        {"object": "error", "message": "Sampling temperature cannot be set", "type": "BadRequestError"},
        "<html><body>Unsupported: temperature</body></html>",
    ],
    ids=str,
)
def test_a_named_parameter_is_found(codec, error) -> None:
    """In a member, in a text, as a key, in another object or as plain text."""
    body = error.encode() if isinstance(error, str) else orjson.dumps(error)
    assert codec.find_refused(QUESTION, body) == "temperature"


@pytest.mark.parametrize(
    ("codec", "message", "form"),
    [
        (CHAT, OPENAI, "max_tokens"),
        (CHAT, "max_tokens is too large: 6000. This model supports at most 4,096 completion tokens.", "limit>4096"),
        (CHAT, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", "max_tokens"),
        (CHAT, "max_tokens must be less than or equal to 2048", "limit>2048"),
        (RESPONSES, "maxOutputTokens is unknown", "max_output_tokens"),
        (RESPONSES, "Stream must be set to true", "stream"),
        (RESPONSES, "Store must be set to false", "store"),
        (MESSAGES, "max_tokens: 6000 > 4096, which is the maximum allowed number of output tokens", "limit>4096"),
        (MESSAGES, "non-streaming requests are not allowed", "stream"),
        (CHAT, "temperatures of the pump", None),
        (CHAT, "no such model: stream_7b", None),
    ],
)  # fmt: skip
def test_only_what_the_question_has_is_found(codec, message: str, form: str | None) -> None:
    """As a word of its own. Of a limit that is only too large, the accepted one is found."""
    assert codec.find_refused(QUESTION, orjson.dumps({"error": {"message": message}})) == form


def test_what_an_error_quotes_of_the_request_is_not_its_reason() -> None:
    """The client's text may contain any word; a member that names a field comes before every text."""
    quoted = {"detail": [{"loc": ["body", "stream"], "msg": "no temperature", "input": {"temperature": 0.2}}]}
    assert CHAT.find_refused(QUESTION, orjson.dumps(quoted)) == "stream"
    assert (
        CHAT.find_refused(QUESTION, orjson.dumps({"input": {"temperature": 1, "max_tokens": 2}, "msg": "no"})) is None
    )


def test_each_form_is_refused_once() -> None:
    """A refusal changes the form; when none is left, nothing is found."""
    question, seen = QUESTION, []
    body = orjson.dumps({"detail": "max_tokens, max_completion_tokens and stream are unknown"})
    while (form := CHAT.find_refused(question, body)) is not None:
        seen.append(form)
        question = Question("m", 4000, 0.2, refused=frozenset(seen))
    assert seen == ["max_tokens", "max_completion_tokens", "stream", "stream=true"]


def test_the_smallest_refused_limit_counts() -> None:
    """A limit that the upstream accepts stays."""
    refused = frozenset({"limit>4096", "limit>2048"})
    limits = [MESSAGES.write_parameters(Question("m", most, refused=refused), None) for most in (4000, 1000)]
    assert [one["max_tokens"] for one in limits] == [2048, 1000]


@given(body=st.binary(max_size=60) | ODD.map(dump))
def test_whatever_comes_names_a_form_or_nothing(body: bytes) -> None:
    """Nothing is raised."""
    for codec in (CHAT, RESPONSES, MESSAGES):
        form = codec.find_refused(QUESTION, body)
        assert form is None or form in codec.list_parameters(QUESTION) or form.startswith("limit>")
