"""Bytes of requests and responses: valid ones with strange bodies, strange ones, and bytes that are not HTTP."""

from dataclasses import dataclass

from fuzzing import chat_bodies, messages_bodies, responses_bodies
from fuzzing.answers import write_answer
from fuzzing.choices import Choices
from fuzzing.overflow_targets import write_refusal
from fuzzing.stream_events import write_messages_event, write_responses_event, write_stream

_METHODS = (
    b"POST", b"POST", b"POST", b"POST", b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"CONNECT", b"TRACE",
    b"BREW", b"post",
)  # fmt: skip
_PATHS = (
    b"/v1/chat/completions", b"/v1/chat/completions", b"/v1/chat/completions", b"/chat/completions",
    b"/v1/chat/completions?a=b&c", b"/v1/models", b"/v1/realtime", b"/", b"//", b"/%2e%2e/%00", b"/v1/../x", b"*",
    b"http://evil.example/v1/chat/completions", b"http://[", b"evil.example:443", b"/trimtab/health",
    b"/trimtab/none", b"/metrics", b"/\xff", b"/a b", b"/#", b"/[", b"", b"/" + b"a" * 9000,
)  # fmt: skip
_COMPACTED = (b"/v1/chat/completions", b"/v1/responses", b"/v1/messages", b"/v1/chat/completions")
HOSTS = (b"localhost", b"127.0.0.1:8790", b"[::1]", b"LOCALHOST.", b"a.localhost", b"10.0.0.1")
STRANGE_HOSTS = (
    b"evil.example", b"localhost.evil.example", b"127.0.0.1.evil.example:80", b"evil", b"evil.example.",
    b"localhost@evil", b"evil.example:127", b"[evil.example]", b"localhost evil.example", b"evil.example/localhost",
    b"xn--evil",
)  # fmt: skip
"""Names that do not belong to this machine."""
PLANTED = b"PLANTED"
_TRAILERS = (
    b"X-T: 1", b"Authorization: Bearer PLANTED", b"Host: PLANTED.example", b"x-trimtab-key: PLANTED",
    b"Cookie: PLANTED", b"Connection: PLANTED", b"PLANTED: 1\r\nX-T: PLANTED",
    b" PLANTED", b"PLANTED", b"X-T: a\r\n PLANTED",
    b"Transfer-Encoding: PLANTED", b"Content-Length: 7\r\nX-T: PLANTED",
)  # fmt: skip
_VERSIONS = (b" HTTP/1.1", b" HTTP/1.1", b" HTTP/1.1", b" HTTP/1.0", b" HTTP/2.0", b"")
_HEADERS = (
    b"Content-Type: application/json", b"Authorization: Bearer sk-1", b"Authorization: ", b"Accept-Encoding: gzip",
    b"X-Trimtab-Mode: observe", b"x-trimtab-mode: off", b"X-Trimtab-Profile: none", b"Expect: 100-continue",
    b"expect: x", b"Content-Encoding: gzip", b"Content-Encoding: zstd", b"Connection: X-A", b"TE: trailers",
    b"X-A: 1\r\nX-A: 2", b"X-B: \xff\xfe", b"Cookie: a=b; c", b"Upgrade: websocket\r\nConnection: Upgrade",
    b"Sec-WebSocket-Key: x", b"Host: other", b"Host: [", b": x", b"X : y", b"X-C: a\r\n b",
    b"Transfer-Encoding: gzip", b"X-D: " + b"d" * 9000, b"Content-Length: 3", b"Content-Length: -1",
    b"Content-Length: 99999999999999999999", b"Range: bytes=0-", b"Keep-Alive: 1",
)  # fmt: skip
_STATUSES = (
    b"200", b"200", b"200", b"201", b"204", b"304", b"302", b"400", b"401", b"404", b"413", b"422", b"429", b"501",
    b"503", b"999", b"100", b"1", b"x",
)  # fmt: skip
_ANSWER_HEADERS = (
    b"Content-Type: application/json", b"Content-Type: text/event-stream",
    b"Content-Type: text/event-stream; charset=utf-8", b"Content-Type: ;;\xff", b"Content-Encoding: gzip",
    b"Set-Cookie: a=b", b"Location: http://evil.example/", b"X-A: 1\r\nX-A: 2", b"X-B: \xff",
    b"Connection: close, X-A", b"Upgrade: h2c", b"Trailer: X", b"Content-Length: 5", b"Content-Length: 999999",
    b"Retry-After: 1", b"x-trimtab-tokens: 1", b"Date: never", b"Transfer-Encoding: identity", b"Bad", b"X : y",
    b"Server: up",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RawRequest:
    """The bytes that a client sends. A request that is not whole may have no end, and get no response."""

    data: bytes
    is_whole: bool


def write_request(choices: Choices) -> RawRequest:
    """A request, in most cases in a known dialect and with valid framing."""
    kind = choices.below(8)
    if kind == 1:
        return RawRequest(choices.take(200), is_whole=False)
    method, path, version, odd = _METHODS[0], choices.pick(_COMPACTED), _VERSIONS[0], 0
    if choices.happens(96):
        method, path, version, odd = (
            choices.pick(_METHODS),
            choices.pick(_PATHS),
            choices.pick(_VERSIONS),
            choices.below(4),
        )
    host = choices.pick(HOSTS) if choices.happens(32) else HOSTS[0]
    headers = [b"Host: " + host, *(choices.pick(_HEADERS) for _ in range(odd)), b"Connection: close"]
    body = _write_body(path, choices)
    framing = choices.below(6)
    if framing == 1:
        headers.append(b"Transfer-Encoding: chunked")
        body = _chunk(body, choices)
    elif framing == 2:
        headers.append(b"Content-Length: %d" % (len(body) + choices.below(20)))
    elif framing == 3:
        headers += [b"Transfer-Encoding: chunked", b"Content-Length: %d" % len(body)]
    else:
        headers.append(b"Content-Length: %d" % len(body))
    data = b"\r\n".join([method + b" " + path + version, *headers, b"", body])
    if kind == 2:
        return RawRequest(choices.mutate(data[: 400 + choices.below(400)]), is_whole=False)
    # An odd header may affect the framing, and then the end of the request is not defined.
    is_plain = framing not in {2, 3} and all(header.startswith(_HARMLESS) for header in headers[1:-2])
    return RawRequest(data, is_whole=is_plain and method == b"POST" and b" HTTP/1." in data)


def _write_body(path: bytes, choices: Choices) -> bytes:
    """A body in the dialect of the path."""
    for ending, grammar in ((b"/responses", responses_bodies.GRAMMAR), (b"/messages", messages_bodies.GRAMMAR)):
        if path.endswith(ending):
            return grammar.write(choices)[0]
    return chat_bodies.write_body(choices)[0]


_HARMLESS = (
    b"Content-Type", b"Authorization", b"Accept", b"X-Trimtab", b"x-trimtab", b"X-A", b"Cookie", b"TE", b"Expect: 100",
)  # fmt: skip


def _chunk(body: bytes, choices: Choices) -> bytes:
    """The body in chunks, sometimes with extensions and trailers."""
    size = 1 + choices.below(3000)
    extension = b";a=b" if choices.happens(32) else b""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    trailer = choices.pick(_TRAILERS) + b"\r\n" if choices.happens(64) else b""
    return (
        b"".join(b"%x%s\r\n%s\r\n" % (len(piece), extension, piece) for piece in pieces) + b"0\r\n" + trailer + b"\r\n"
    )


def write_pair(choices: Choices) -> tuple[list[bytes], bool]:
    """Two requests for one connection, in pieces: a chunked one with planted trailers, then a plain one.

    Also returns whether the second one's host is strange.
    """
    path, body = choices.pick(
        ((b"/v1/embeddings", b"{}"), (b"/v1/chat/completions", chat_bodies.write_body(choices)[0]))
    )
    first = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    size = 1 + choices.below(500)
    for at in range(0, len(body), size):
        piece = body[at : at + size]
        first += b"%x%s\r\n%s\r\n" % (len(piece), b";a=b" if choices.happens(16) else b"", piece)
    trailers = b"".join(choices.pick(_TRAILERS) + b"\r\n" for _ in range(1 + choices.below(3)))
    is_strange = choices.happens(96)
    host = choices.pick(STRANGE_HOSTS if is_strange else HOSTS)
    second = b"GET /v1/next HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"
    data = first + b"0\r\n" + trailers + b"\r\n" + second
    cuts = sorted(choices.below(len(data)) for _ in range(choices.below(4)))
    return [data[start:stop] for start, stop in zip((0, *cuts), (*cuts, len(data)), strict=True)], is_strange


def _write_answer(choices: Choices) -> bytes:
    """A response in any dialect."""
    write = choices.pick((None, write_responses_event, write_messages_event))
    return write_answer(choices) if write is None else write_stream(choices, write, ("type", "delta", "usage", "error"))


def write_response(choices: Choices) -> bytes:
    """The bytes that an upstream sends before it disconnects. Its status is never 500, so a 500 must be the proxy's."""
    kind = choices.below(8)
    if kind == 1:
        return choices.take(100).replace(b"500", b"501")
    status = choices.pick(_STATUSES)
    body = write_refusal(choices) if choices.happens(64) else _write_answer(choices)
    headers = [choices.pick(_ANSWER_HEADERS[:3])]
    headers += [choices.pick(_ANSWER_HEADERS) for _ in range(choices.below(4) // 2)]
    if kind == 2:
        headers.append(b"Transfer-Encoding: chunked")
        body = _chunk(body, choices)
    elif kind > 3:
        headers.append(b"Content-Length: %d" % len(body))
    reason = choices.pick((b" OK", b"", b" \xff", b" a\tb"))
    data = b"\r\n".join([b"HTTP/1.1 " + status + reason, *headers, b"", body])
    data = choices.mutate(data) if kind == 3 else data
    return data.replace(b"500", b"501")
