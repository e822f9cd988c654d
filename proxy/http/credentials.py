"""Where a request may hold credentials: the keys that admit a client to an upstream, and the names of who pays.

Law: a header or query parameter whose name says that it holds a key counts as a credential, known or not. So two
requests with different credentials never look alike, and every credential can be kept from an upstream.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import unquote_plus

CLASSIC_NAMES = ("authorization", "api-key", "x-api-key")
"""Headers from which the first versions derived a tenant's secret. Stored summaries were written under these."""
SCHEMES = frozenset({"bearer", "basic"})
COOKIE = "cookie"

KEY_NAMES: Mapping[str, str] = {
    "authorization": "RFC 9110 section 11.6.2; OpenAI, and most that are compatible with it",
    "proxy-authorization": "RFC 9110 section 11.7.2; it is not forwarded, but tells clients apart",
    "cookie": "RFC 6265; gateways behind a login",
    "api-key": "Azure OpenAI; as a query parameter of its WebSockets, too",
    "x-api-key": "Anthropic; AWS API Gateway",
    "x-goog-api-key": "Google, system parameters, for Gemini and Vertex AI",
    "key": "Google, system parameters, in the query",
    "$key": "Google, system parameters, in the query",
    "ocp-apim-subscription-key": "Azure API Management",
    "subscription-key": "Azure API Management, in the query",
    "x-functions-key": "Azure Functions",
    "code": "Azure Functions, in the query",
    "sig": "Azure, shared access signatures, in the query",
    "x-amz-security-token": "AWS Signature Version 4, as a header or in the query",
    "x-amz-credential": "AWS Signature Version 4, in the query",
    "x-amz-signature": "AWS Signature Version 4, in the query",
    "access-token": "RFC 6750 section 2.3, in the query; Baidu",
    "oauth-token": "Google, system parameters, in the query",
    "token": "common, in the query",
    "auth": "common",
    "apikey": "Kong and APISIX, plugin key-auth, as a header or in the query",
    "x-auth-token": "OpenStack, and gateways after it",
    "x-auth-key": "Cloudflare's API",
    "cf-aig-authorization": "Cloudflare AI Gateway",
    "cf-access-client-secret": "Cloudflare Access, service tokens",
    "x-portkey-api-key": "Portkey",
    "x-portkey-virtual-key": "Portkey",
    "x-portkey-config": "Portkey: JSON that may hold keys of providers",
    "helicone-auth": "Helicone",
    "x-litellm-api-key": "LiteLLM proxy",
    "x-bf-vk": "Bifrost, virtual keys",
    "x-amzn-oidc-data": "AWS Application Load Balancer, a signed token",
    "x-ms-client-principal": "Azure App Service, an encoded token",
    "authentication": "common",
    "x-pass": "common",
    "pass": "common, in the query",
    "pwd": "common, in the query",
    "ticket": "common, in the query",
    "ak": "Baidu and Volcengine, in the query",
    "sk": "Baidu and Volcengine, in the query",
    "x-vercel-protection-bypass": "Vercel, protection bypass for automation",
}
"""Headers and query parameters that hold a key, and who uses them. Names are compared in the form of `plain`.

Source: the documentation of each service.
"""
KEY_ENDINGS = (
    "authorization", "-auth", "-key", "apikey", "appkey", "token", "secret", "password", "passwd", "-pwd", "credential",
    "credentials", "jwt", "assertion",
)  # fmt: skip
"""Endings of names that hold a key."""
OTHER_ENDINGS = (
    "idempotency-key", "websocket-key", "cache-key", "routing-key", "partition-key", "surrogate-key", "csrf-token",
    "xsrf-token", "page-token", "next-token", "continuation-token", "client-token", "request-token",
)  # fmt: skip
"""Endings of names that look like a key but admit nobody. Many of these values are new in each request, so each request
would become a tenant of its own."""

ACCOUNT_NAMES = frozenset({
    "openai-organization", "openai-project", "chatgpt-account-id",  # OpenAI
    "x-goog-user-project",  # Google, system parameters
    "x-hf-bill-to",  # Hugging Face
    "x-dashscope-workspace",  # Alibaba Model Studio
    "groupid",  # MiniMax, in the query
    "x-auth-email",  # Cloudflare's API
    "cf-access-client-id",  # Cloudflare Access
})  # fmt: skip
"""These name the account that pays, next to a key. They are not secret."""
IDENTITY_NAMES = frozenset({
    "x-forwarded-user", "x-forwarded-email", "x-auth-request-user", "x-auth-request-email",  # oauth2-proxy
    "remote-user", "x-remote-user", "x-webauth-user",  # nginx, Apache, Grafana
    "cf-access-authenticated-user-email",  # Cloudflare Access
    "x-goog-authenticated-user-id", "x-goog-authenticated-user-email",  # Google's Identity-Aware Proxy
    "x-amzn-oidc-identity", "x-amzn-mtls-clientcert", "x-amzn-mtls-clientcert-subject",  # AWS load balancers
    "x-ms-client-principal-id", "x-ms-client-principal-name",  # Azure App Service
    "tailscale-user-login",  # Tailscale
    "x-forwarded-preferred-username", "x-webauth-email", "remote-email", "x-vouch-user",  # oauth2-proxy, Vouch
    "x-consumer-username", "x-consumer-custom-id", "x-consumer-id", "x-credential-identifier",  # Kong
    "x-authenticated-userid",  # Kong
    "x-forwarded-client-cert",  # Envoy
    "client-cert", "ssl-client-cert", "x-ssl-client-cert", "x-ssl-client-s-dn",  # RFC 9440; nginx and HAProxy
    "x-authentik-username", "x-authentik-uid", "x-pomerium-claim-email",  # authentik, Pomerium
    "x-userinfo", "x-endpoint-api-userinfo",  # APISIX, Google Cloud Endpoints
    "x-openwebui-user-id", "x-openwebui-user-email",  # Open WebUI, behind one key for all its users
    "x-litellm-end-user-id", "helicone-user-id", "x-helicone-user-id",  # LiteLLM, Helicone
})  # fmt: skip
"""In these, a proxy between the client and trimtab names the user that it has authenticated."""
GUESSABLE_NAMES = ACCOUNT_NAMES | IDENTITY_NAMES | {COOKIE, "/"}
"""These tell clients apart, but somebody who reads a store might guess their values."""
_KNOWN_NAMES = KEY_NAMES.keys() | ACCOUNT_NAMES | IDENTITY_NAMES

_BALANCERS = re.compile(
    r"AWSALB(TG)?(CORS)?|AWSELB(CORS)?|__cf_bm|__cflb|_cfuvid|cf_clearance|GCLB|GCILB|ARRAffinity(SameSite)?|SERVERID"
    r"|visid_incap_\w+|incap_ses_\w+"
)
"""Cookies of load balancers and robot filters (AWS, Cloudflare, Google, Azure, HAProxy, Imperva). They admit nobody,
and some are new in each response."""
_SUBPROTOCOL_KEYS = ("openai-insecure-api-key.", "openai-organization.", "openai-project.", "base64url.bearer.")
"""WebSocket subprotocols that hold a credential, because a browser cannot set headers there. Source: OpenAI's Realtime
API (`openai-insecure-api-key.KEY`, `openai-organization.ID`, `openai-project.ID`); Kubernetes."""
_PATH_KEY = re.compile(r"/([^/]{20,})")
"""A path segment that may be a key (Helicone takes keys there). 20 characters is chosen: words are shorter."""
_SEPARATOR = re.compile("([&;])")  # Some servers still accept `;` for `&`. Source: HTML 4.01 appendix B.2.2.

MAX_KNOWN_NAMES = 512  # Names of headers in one `KnownNames`. Chosen: a client sends some twenty.
MAX_KNOWN_CHARS = 64  # A longer name is not remembered. Chosen: longer than real ones; bounds the memory.

N = TypeVar("N", str, bytes)
T = TypeVar("T")
Headers = Iterable[tuple[str, str]]
Shown = Sequence[tuple[str, str]]  # Credentials of a request: (name in the form of `plain`, value). See `find_shown`.


def plain(name: str) -> str:
    """A name in the form of the tables: lower case, `-` for `_`, because some servers treat these two alike."""
    return name.lower().replace("_", "-")


def is_key(name: str) -> bool:
    return name in KEY_NAMES or (name.endswith(KEY_ENDINGS) and not name.endswith(OTHER_ENDINGS))


def is_credential(name: str) -> bool:
    """Whether a `plain` name is that of a key or of an account. Only the client's own upstream may see these."""
    return name in ACCOUNT_NAMES or is_key(name)


class KnownNames(dict[N, T]):
    """What is known of the names of headers, as they were sent: the same few are sent again and again."""

    def __init__(self, look: Callable[[N], T]) -> None:
        self._look: Callable[[N], T] = look

    def __missing__(self, name: N) -> T:
        found = self._look(name)
        if len(name) <= MAX_KNOWN_CHARS:
            if len(self) >= MAX_KNOWN_NAMES:
                self.clear()
            self[name] = found
        return found


_IS_CREDENTIAL = KnownNames[str, bool](lambda name: is_credential(plain(name)))


def keep_credentials(headers: Headers) -> list[tuple[str, str]]:
    return [item for item in headers if _IS_CREDENTIAL[item[0]]]


def drop_credentials(headers: Headers) -> list[tuple[str, str]]:
    """The client's headers without credentials, for an upstream that gets another. Subprotocols lose keys only."""
    kept = []
    for name, value in headers:
        lower = plain(name)
        if lower == "sec-websocket-protocol":
            items = [item for item in value.split(",") if not item.strip().lower().startswith(_SUBPROTOCOL_KEYS)]
            kept += [(name, left)] if (left := ",".join(items).strip()) else []
        elif not is_credential(lower):
            kept.append((name, value))
    return kept


def find_shown(headers: Headers, target: str = "") -> Shown:
    """Everything in a request that identifies the client, as (`plain` name, value) in the request's order.

    The name of a query parameter begins with `?`. If there is nothing else, long path segments count, under the name
    `/`. A value that is empty or only a scheme (`Bearer`) does not count.
    """
    shown = []
    for name, value in headers:
        known = name.lower().replace("_", "-")
        if known in _KNOWN_NAMES or (known.endswith(KEY_ENDINGS) and not known.endswith(OTHER_ENDINGS)):
            if known == COOKIE:
                crumbs = ((crumb.partition("=")[0].strip(), crumb.strip()) for crumb in value.split(";"))
                value = ";".join([crumb for one, crumb in crumbs if crumb and not _BALANCERS.fullmatch(one)])  # noqa: PLW2901
            if value.strip().lower() not in {"", *SCHEMES}:
                shown.append((known, value))
    path, mark, query = target.partition("?")
    if mark:
        pieces = ((_name(piece), piece.partition("=")[2]) for piece in _SEPARATOR.split(query)[::2])
        shown += [(f"?{name}", value) for name, value in pieces if value and is_credential(name)]
    return shown or [("/", part) for part in _PATH_KEY.findall(path)]


def find_query_keys(target: str) -> str:
    """The query parameters of a target that are credentials, unchanged and joined by `&`; empty if there are none."""
    return "&".join(piece for piece in _SEPARATOR.split(target.partition("?")[2])[::2] if is_credential(_name(piece)))


def drop_query_keys(target: str) -> str:
    """The target without the query parameters that are credentials; all other bytes stay."""
    path, mark, query = target.partition("?")
    if not mark:
        return target
    pieces = _SEPARATOR.split(query)
    kept = [index for index in range(0, len(pieces), 2) if not is_credential(_name(pieces[index]))]
    if 2 * len(kept) > len(pieces):  # every parameter stays; `pieces` also holds the separators between them
        return target
    left = "".join(pieces[index - 1] * (place > 0) + pieces[index] for place, index in enumerate(kept))
    return f"{path}?{left}" if left else path


def _name(piece: str) -> str:
    """The name of a query parameter as servers read it: `k%65y[]=` is `key`."""
    return plain(unquote_plus(piece.partition("=")[0]).partition("[")[0].strip())
