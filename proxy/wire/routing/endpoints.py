"""What is known of a request that no codec claims, by its method and path.

Law: an API that generates or reads with a model is named here, so that whatever of it is not compacted says so.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An API of model servers.

    label: its name in metrics and log lines. An API that belongs to a dialect has the dialect's name.
    is_inference: the requests are for a model, or ask for models.
    has_prompt: a request may hold a prompt that is too long for its model.
    """

    label: str
    is_inference: bool = True
    has_prompt: bool = False


MESSAGES, OTHER = "messages", "other"
UNKNOWN = Endpoint(OTHER, is_inference=False)
"""Any path that is not of a known API."""
_CHAT, _RESPONSES, _MESSAGES = (Endpoint(name, has_prompt=True) for name in ("chat", "responses", MESSAGES))
_COMPLETIONS, _NATIVE = (Endpoint(name, has_prompt=True) for name in ("completions", OTHER))
_POSTED: tuple[tuple[str, Endpoint], ...] = (
    (r"/chat/completions$", _CHAT),
    (r"/responses$", _RESPONSES),
    (r"/messages(?:/batches)?$", _MESSAGES),
    (r"/messages/count_tokens$", Endpoint(MESSAGES)),
    (r"/completions?$|/infill$", _COMPLETIONS),  # llama.cpp has /completion and /infill
    (r"/(?:embed|embeddings?)$|:(?:embedContent|batchEmbedContents)$", Endpoint("embeddings")),
    (r"/(?:moderations|rerank|score|classify)$|/(?:audio|images)/[^/]+$|:(?:countTokens|predict)$", Endpoint(OTHER)),
    (r":(?:generateContent|streamGenerateContent)$", _NATIVE),  # Gemini, and Vertex
    (r":(?:rawPredict|streamRawPredict)$", _NATIVE),  # Vertex, for models of others
    (r"/(?:invoke|invoke-with-response-stream|converse|converse-stream)$", _NATIVE),  # Bedrock
    (r"/api/(?:chat|generate)$", _NATIVE),  # Ollama
    (r"/v[12]/chat$|/generate(?:_stream)?$", _NATIVE),  # Cohere; TGI and SGLang
)
_ASKED: tuple[tuple[str, Endpoint], ...] = (
    (r"/models(?:/|$)", Endpoint("models")),
    (r"/responses$", _RESPONSES),  # a WebSocket
    (r"/realtime$", Endpoint(OTHER)),
)
_OF_ANY_METHOD: tuple[tuple[str, Endpoint], ...] = (
    (r"/responses/[^/]", Endpoint("responses")),
    (r"/messages/batches(?:/|$)", Endpoint(MESSAGES)),
)
_ENDPOINTS = {
    method: tuple((re.compile(pattern), endpoint) for pattern, endpoint in (*rows, *_OF_ANY_METHOD))
    for method, rows in {"POST": _POSTED, "GET": _ASKED, "": ()}.items()
}
_OF_A_THREAD = "/threads/"
"""Below it, a server keeps the conversation. Source: OpenAI's Assistants API."""


def find_endpoint(method: str, path: str) -> Endpoint:
    """The API of a request, by its path without the query; UNKNOWN for any other path."""
    path = path.removesuffix("/")
    rows = _ENDPOINTS.get(method, _ENDPOINTS[""])
    found = next((endpoint for pattern, endpoint in rows if pattern.search(path)), UNKNOWN)
    return UNKNOWN if found is _MESSAGES and _OF_A_THREAD in path else found
