"""What is known of requests that no codec claims."""

import pytest

from proxy.wire.routing.endpoints import UNKNOWN, Endpoint, find_endpoint

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
ASKED = {
    "/v1/models": "models",
    "/v1/models/meta-llama/Llama-3": "models",
    "/v1/responses/resp_1": "responses",
    "/v1/responses/resp_1/input_items": "responses",
    "/v1/messages/batches/b_1/results": "messages",
    "/v1/realtime": "other",
}


@pytest.mark.parametrize(("path", "label"), PROMPTS.items())
def test_an_api_with_prompts_is_known(path: str, label: str) -> None:
    """What is posted there may be too long for its model."""
    assert find_endpoint("POST", path) == Endpoint(label, has_prompt=True)


@pytest.mark.parametrize(("path", "label"), OTHERS.items())
def test_an_api_whose_prompts_never_grow_is_known(path: str, label: str) -> None:
    """Nothing there could be compacted."""
    assert find_endpoint("POST", path) == Endpoint(label)


@pytest.mark.parametrize(("path", "label"), ASKED.items())
def test_what_is_only_asked_for_is_known(path: str, label: str) -> None:
    """A GET has no prompt."""
    assert find_endpoint("GET", path) == Endpoint(label)


def test_the_websocket_of_responses_has_prompts() -> None:
    """It begins with a GET at the path of the API."""
    assert find_endpoint("GET", "/v1/responses") == Endpoint("responses", has_prompt=True)


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
    """Whatever is done to it."""
    assert find_endpoint(method, "/v1/responses/resp_1").label == "responses"
