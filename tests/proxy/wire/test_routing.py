"""What is known of requests that no codec claims."""

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trimtab.proxy.wire.routing import (
    FORM_BYTES,
    MAX_FIELDS,
    UNKNOWN,
    Endpoint,
    find_deployment,
    find_endpoint,
    find_listed,
    peek_model,
    read_form_model,
    read_model,
    replace_deployment,
)

PROMPTS = {
    "/v1/chat/completions": "chat",
    "/v1/responses/": "responses",
    "/v1/messages": "messages",
    "/v1/messages/batches": "messages",
    "/v1/completions": "completions",
    "/v1/fim/completions": "completions",
    "/completion": "completions",
    "/v1beta/models/gemini-2.5-pro:generateContent": "other",
    "/v1beta/models/gemini-2.5-pro:streamGenerateContent": "other",
    "/v1/projects/p/locations/l/publishers/anthropic/models/claude-x@1:rawPredict": "other",
    "/v1/projects/p/locations/l/publishers/anthropic/models/claude-x@1:streamRawPredict": "other",
    "/model/anthropic.claude-v1:0/invoke": "other",
    "/model/arn:aws:bedrock:x:1:inference-profile/y/converse-stream": "other",
    "/model/anthropic.claude-v1:0/invoke-with-response-stream": "other",
    "/api/chat": "other",
    "/api/generate": "other",
    "/generate_stream": "other",
    "/v2/chat": "other",
}
OTHERS = {
    "/v1/responses/compact": "responses",
    "/v1/responses/input_tokens": "responses",
    "/v1/responses/resp_1/cancel": "responses",
    "/v1/messages/count_tokens": "messages",
    "/v1/messages/batches/b_1/cancel": "messages",
    "/v1/embeddings": "embeddings",
    "/api/embed": "embeddings",
    "/openai/deployments/e/embeddings": "embeddings",
    "/v1beta/models/m:embedContent": "embeddings",
    "/v1/moderations": "other",
    "/v1/rerank": "other",
    "/v1/audio/transcriptions": "other",
    "/v1/images/edits": "other",
    "/v1beta/models/m:countTokens": "other",
}
WEBSOCKET = {"/v1/responses": "responses"}
ASKED = {
    "/v1/models": "models",
    "/v1/models/meta-llama/Llama-3": "models",
    "/v1/responses/resp_1": "responses",
    "/v1/responses/resp_1/input_items": "responses",
    "/v1/messages/batches/b_1/results": "messages",
    "/v1/realtime": "other",
}


@pytest.mark.parametrize(
    ("method", "paths", "has_prompt"),
    [("POST", PROMPTS, True), ("POST", OTHERS, False), ("GET", ASKED, False), ("GET", WEBSOCKET, True)],
)  # fmt: skip
def test_an_api_is_known_and_whether_its_prompts_may_be_too_long(
    method: str, paths: dict[str, str], *, has_prompt: bool
) -> None:
    """The websocket of Responses begins with a GET at the path of the API."""
    for path, label in paths.items():
        assert find_endpoint(method, path) == Endpoint(label, has_prompt=has_prompt)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/files"),
        ("POST", "/v1/threads/t_1/messages"),
        ("POST", "/v1/batches"),
        ("POST", "/v1/models"),
        ("GET", "/v1/files/f_1"),
        ("GET", "/v1/chat/completions"),
        ("GET", "/v1/threads/t_1/messages"),
        ("DELETE", "/v1/models/m"),
        ("PURGE", ""),
        ("POST", "/" + "model/" * 10_000),
    ],
)
def test_any_other_request_is_unknown(method: str, path: str) -> None:
    """Files, objects that a server keeps, and everything else."""
    assert find_endpoint(method, path) == UNKNOWN


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
def test_what_a_server_keeps_belongs_to_its_api(method: str) -> None:
    assert find_endpoint(method, "/v1/responses/resp_1").label == "responses"


AZURE = "/openai/deployments/{}/chat/completions?api-version=2024-10-21"


@pytest.mark.parametrize(
    ("target", "deployment"),
    [
        (AZURE.format("gpt-4o"), "gpt-4o"),
        (AZURE.format("my%20model%2Fx"), "my model/x"),
        ("/v1/chat/completions", ""),
        ("/openai/deployments//chat/completions", ""),
        ("/v1/chat/completions?next=/deployments/x/y", ""),
    ],
)
def test_a_deployment_in_the_path_stands_for_a_model(target: str, deployment: str) -> None:
    """Only a whole segment of the path counts, with its escapes undone."""
    assert find_deployment(target) == deployment


def test_another_deployment_changes_one_segment() -> None:
    """The query stays, and so does a target without a deployment."""
    assert replace_deployment(AZURE.format("a%2Fb"), "small/one") == AZURE.format("small%2Fone")
    assert replace_deployment("/v1/chat/completions?a=1", "small") == "/v1/chat/completions?a=1"


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/v1/models/meta-llama/Llama 3", "meta-llama/Llama 3"),
        ("/v1/models", ""),
        ("/v1beta/models/gemini", ""),
    ],
)
def test_an_entry_of_the_list_is_that_of_one_model(path: str, model: str) -> None:
    assert find_listed(path) == model


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b'{"input":"x","model":"a\\u00e9"}', "aé"),
        (b'{"model":"a","model":"b"}', "b"),
        (b'{"input":{"model":"inner"}}', ""),
        (b'{"model":5}', ""),
        (b'\xef\xbb\xbf{"model":"a"}', "a"),
        (b'{"model":"a","x":NaN}', "a"),
        (b'["model"]', ""),
        (b"[" * 100_000, ""),
    ],
)
def test_the_model_of_a_body_is_its_own_member(body: bytes, model: str) -> None:
    """Members further inside do not count. If the JSON is not valid, its beginning is searched."""
    assert read_model(body) == model


@given(
    st.binary() | st.recursive(st.none() | st.text(), lambda inner: st.dictionaries(st.text(), inner)).map(orjson.dumps)
)
@example(b'{"model":"\\ud800"}')
@example(b'{"model":"\xed\xa0\x80"}')
def test_no_body_raises(body: bytes) -> None:
    assert isinstance(read_model(body), str)
    assert isinstance(peek_model(body), str)
    assert isinstance(read_form_model(body, "multipart/form-data; boundary=x"), str)


def _form(*parts: tuple[str, bytes], boundary: str = "b-1") -> bytes:
    written = [
        f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + value for head, value in parts
    ]
    return b"\r\n".join([*written, f"--{boundary}--\r\n".encode()])


MODEL, FILE = ('name="model"', b"whisper-1"), ('name="file"; filename="model"', b"\x00\r\n" * 3000)
FORM_TYPE = "multipart/form-data; boundary=b-1"


@pytest.mark.parametrize(
    ("body", "content_type", "model"),
    [
        (_form(MODEL, FILE), FORM_TYPE, "whisper-1"),
        (_form(('name="language"', b"de"), MODEL, FILE), FORM_TYPE, "whisper-1"),
        (_form(MODEL, boundary="a b"), 'Multipart/Form-Data; Boundary="a b"', "whisper-1"),
        (_form(("name=model", b" m ")), FORM_TYPE, "m"),
        (_form(FILE, MODEL), FORM_TYPE, ""),
        (_form(('name="models"', b"m"), ('name="x"; filename="model"', b"m")), FORM_TYPE, ""),
        (_form(MODEL, FILE)[:70], FORM_TYPE, ""),
        (_form(MODEL), "multipart/form-data; boundary=other", ""),
    ],
)
def test_the_model_of_a_form_is_a_field_in_its_beginning(body: bytes, content_type: str, model: str) -> None:
    """A field that is cut off, or that follows a large file, does not count."""
    assert len(_form(FILE)) > FORM_BYTES
    assert read_form_model(body, content_type) == model


@pytest.mark.parametrize(("before", "model"), [(MAX_FIELDS - 1, "whisper-1"), (MAX_FIELDS, "")])
def test_so_many_fields_of_a_form_are_looked_at(before: int, model: str) -> None:
    fields = [('name="x"', b"y")] * before
    assert read_form_model(_form(*fields, MODEL, FILE), FORM_TYPE) == model
