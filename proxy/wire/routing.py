"""What a request says about its endpoint and its model, apart from its conversation.

Law: only the path and one member of the body are read. A target is only read, or changed in one segment; all other
bytes stay. An API that generates or reads with a model is named here, so that whatever of it is not compacted says so.
"""

import re
from urllib.parse import quote, unquote

import msgspec

from trimtab.proxy.wire.json import DECODE_ERRORS, try_decode


class Endpoint(msgspec.Struct, frozen=True):
    label: str  # its name in metrics and log lines. An API that belongs to a dialect has the dialect's name.
    is_inference: bool = True  # the requests are for a model, or ask for models
    has_prompt: bool = False  # a request may hold a prompt that is too long for its model


MESSAGES, OTHER = "messages", "other"
UNKNOWN = Endpoint(OTHER, is_inference=False)  # Any path that is not of a known API
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
_OF_A_THREAD = "/threads/"  # Below it, a server keeps the conversation. Source: OpenAI's Assistants API.


def find_endpoint(method: str, path: str) -> Endpoint:
    """The API of a request, by its path without the query; UNKNOWN for any other path."""
    path = path.removesuffix("/")
    rows = _ENDPOINTS.get(method, _ENDPOINTS[""])
    found = next((endpoint for pattern, endpoint in rows if pattern.search(path)), UNKNOWN)
    return UNKNOWN if found is _MESSAGES and _OF_A_THREAD in path else found


FORM_BYTES = 8 * 1024  # Part of a form that is searched for its model. Chosen: clients write plain fields before files.
MAX_FIELDS = 32  # Fields of a form that are searched. Chosen: more than any API has.
_NAMED = re.compile(rb'"model"\s*+:\s*+"([^"\\]{0,256})"')
_BOUNDARY = re.compile(r"""boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
"""Source: RFC 2046 section 5.1.1."""
_IS_MODEL = re.compile(
    rb"""^content-disposition:[^\r\n]*;[ \t]*name="?model"?[ \t]*(?:;|$)""", re.IGNORECASE | re.MULTILINE
)
FIRST_BOUND = (5, 1)
"""The first version of a model that binds its thinking. Source: Anthropic's page on prefix checks. It names Fable and
Mythos 5.1 and 5.2, and Opus, Sonnet and Haiku 5.5."""
_VERSION = re.compile(r"claude-[a-z]+-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
"""A model's version, wherever a gateway puts the name. A date after the name is no version."""
_LISTED = re.compile(r"/v1/models/(.+)")

_DEPLOYMENT = re.compile(r"(/deployments/)([^/?#]+)(?=/)")  # source: Azure OpenAI


def binds_thinking(model: str) -> bool:
    found = _VERSION.search(model)
    return found is not None and (int(found[1]), int(found[2] or 0)) >= FIRST_BOUND


def find_deployment(target: str) -> str:
    found = _DEPLOYMENT.search(target.partition("?")[0])
    return unquote(found[2]) if found else ""


def replace_deployment(target: str, model: str) -> str:
    path, mark, query = target.partition("?")
    return _DEPLOYMENT.sub(lambda found: found[1] + quote(model, safe=""), path, count=1) + mark + query


def find_listed(path: str) -> str:
    """The model whose entry in the list of models a path, its escapes undone, asks for; empty if none."""
    found = _LISTED.fullmatch(path)
    return found[1] if found else ""


class _Named(msgspec.Struct):
    model: msgspec.Raw = msgspec.Raw(b"")


def read_model(body: bytes) -> str:
    """The model that a JSON body names; the empty string if it names none. Raises nothing."""
    try:
        model = try_decode(bytes(msgspec.json.decode(body, type=_Named).model))
    except DECODE_ERRORS:
        return peek_model(body)
    return model if isinstance(model, str) else ""


def peek_model(beginning: bytes) -> str:
    found = _NAMED.search(beginning)
    return found[1].decode("utf-8", "replace") if found else ""


def read_form_model(beginning: bytes, content_type: str) -> str:
    """The model that a field of a form names, if the field is whole in its beginning; else the empty string."""
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        return ""
    mark = b"\r\n--" + (boundary[1] or boundary[2]).encode("utf-8", "replace")
    parts = (b"\r\n" + beginning[:FORM_BYTES]).split(mark, MAX_FIELDS + 1)
    for part in parts[1:-1]:  # the last one may be cut off
        head, blank, value = part.partition(b"\r\n\r\n")
        if blank and _IS_MODEL.search(head.replace(b"\r\n", b"\n")):
            return value.decode("utf-8", "replace").strip()
    return ""
