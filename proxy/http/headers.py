"""Headers on their way through: which of them end here, which go on, and which tell who asks.

Law: the client's credential goes to upstreams that are to be shown it, and nowhere else. Hop-by-hop headers stay on
their hop; everything else passes as it is.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from multidict import CIMultiDict

from proxy.config.schema import UpstreamConfig
from proxy.http.credentials import drop_credentials
from rules.conversation import Decision

HOP_BY_HOP = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Source: RFC 9110 section 7.6.1, with `proxy-connection` as browsers send it."""
NOT_FORWARDED = HOP_BY_HOP | {"host", "content-length", "expect"}
"""Of a request: said anew for the next hop, or said for this one."""
MAX_HEAD_BYTES = 64 * 1024
"""Of a request, with its target, and of an answer. Source: Node takes 16 KiB, nginx 32, curl 300, Go 1024."""
MAX_HEADER_FIELDS = 1000
"""Of a request or an answer, trailers included. Source: Apache and Python's http.client take 100, most others any."""
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
OWN_PREFIX = "x-trimtab-"
KEY_HEADER = f"{OWN_PREFIX}key"
"""For clients whose `Authorization` is the upstream's; it goes no further than here."""
AFFINITY_HEADERS = frozenset({"x-grok-conv-id", "x-session-affinity", "x-session-id"})
"""By these an upstream leads a session to where its prompt cache is: xAI, Fireworks, OpenRouter and other gateways."""

REWRITING_HEADERS = frozenset(
    {
        "x-original-url", "x-rewrite-url", "x-original-uri", "x-override-url",  # IIS, Symfony, Zend, nginx
        "x-envoy-original-path", "x-forwarded-prefix",  # Envoy, Traefik
        "x-http-method-override", "x-http-method", "x-method-override",  # frameworks
    }
)  # fmt: skip
"""By these some servers take a request for one of another path or method: the operator's own key is not for that."""

_CONNECTION_CHARS = len("connection")
Headers = Sequence[tuple[str, str]]
NO_TOKENS: Mapping[str, int] = {}


def read_headers(raw_headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Headers in wire order and case, duplicates kept; bytes beyond ASCII survive."""
    return [
        (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
        for name, value in raw_headers
    ]


def drop_hop_by_hop(headers: Headers) -> Headers:
    """Without the headers of this hop: the standard ones and those that `Connection` names."""
    ending = HOP_BY_HOP
    for name, value in headers:
        if len(name) == _CONNECTION_CHARS and name.lower() == "connection":
            ending = ending.union(token.strip().lower() for token in value.split(","))
    return [item for item in headers if item[0].lower() not in ending]


def split_headers(raw_headers: Iterable[tuple[bytes, bytes]]) -> tuple[Headers, Headers]:
    """A request's headers, and those of them that go further than this hop."""
    headers = read_headers(raw_headers)
    return headers, drop_hop_by_hop(headers)


def answer_headers(raw_headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """What the client receives of an upstream's headers: all but this hop's own and what cannot be sent on."""
    headers = drop_hop_by_hop(read_headers(raw_headers))
    if is_sendable("".join([value for _, value in headers])):
        return headers
    return [(name, value) for name, value in headers if is_sendable(value)]


def is_sendable(text: str) -> bool:
    """Whether a header's value, or a reason, has no control character in it, which might split the answer."""
    return CONTROL.search(text) is None


def request_headers(headers: Headers, upstream: UpstreamConfig, *, identity: bool) -> CIMultiDict[str]:
    """What the upstream receives of a client's headers, in their order; `identity` asks it not to compress its answer.

    The client's credentials are among them only if the upstream is to be shown these (`credential`). A header that
    comes again is spelt as it was at first: aiohttp would drop it otherwise.
    """
    own: dict[str, tuple[str, str]] = {}
    if identity:
        own["accept-encoding"] = ("Accept-Encoding", "identity")
    shown, left_out = upstream.shown, frozenset({"host", "expect"})
    if shown == "key":
        own["authorization"] = ("Authorization", f"Bearer {upstream.api_key}")
        left_out |= REWRITING_HEADERS
    spelt: dict[str, str] = {}
    forwarded: CIMultiDict[str] = CIMultiDict()
    further = drop_hop_by_hop(headers)
    for name, value in further if shown == "client" else drop_credentials(further):
        lower = name.lower().replace("_", "-")  # some servers cannot tell these apart
        if lower in left_out or lower.startswith(OWN_PREFIX) or ("_" in name and lower in NOT_FORWARDED):
            continue
        if lower not in own:
            forwarded.add(spelt.setdefault(lower, name), value)
        elif own[lower][0] not in forwarded:
            forwarded.add(*own[lower])
    for name, value in own.values():
        forwarded.setdefault(name, value)
    return forwarded


def write_own_headers(
    request_id: str, overhead_seconds: float, tokens: Mapping[str, int] = NO_TOKENS, decisions: Iterable[Decision] = ()
) -> Headers:
    """What the proxy adds to an answer: whose it is, what it cost, the prompt's tokens and what each rule saved."""
    headers = [("x-trimtab-request-id", request_id), ("Server-Timing", f"trimtab;dur={overhead_seconds * 1000:.1f}")]
    if tokens:
        headers.append(("x-trimtab-tokens", ", ".join(f"{name}={number}" for name, number in tokens.items())))
    saved = ", ".join(f"{item.rule};saved={item.saved_tokens}" for item in decisions)
    return [*headers, ("x-trimtab-decisions", saved)] if saved else headers
