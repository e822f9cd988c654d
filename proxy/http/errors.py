"""Every error response that the proxy itself writes.

Law: an error says what is wrong, where, and what to do. It never contains text of a conversation or a credential.
"""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from trimtab.proxy.wire.answering import PROMPT_TOO_LONG, ErrorText

RETRY_AFTER_SECONDS = 1  # When the proxy is overloaded. Chosen: it only has to keep clients from retrying at once.
NO_MEMORY_LEFT = "too much text in flight (limits.max_memory_bytes); try again"
NO_THREAD_LEFT = "too much work in flight (limits.max_plan_seconds); try again"


class ProxyError(Exception):
    """An error that becomes an HTTP response; its message is the exception's text.

    status, code: of the response; codes never change, so that programs can rely on them.
    closes: whether the response closes the client's connection.
    outcome: of the request, in log lines, metrics and the answer's headers.
    is_unsent: there was no connection over which anything could have been sent.
    """

    status = 500
    code = "internal_error"
    type = "trimtab_error"
    param: str | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    closes = False
    outcome = "refused"
    is_unsent = False

    def __init_subclass__(cls, *, status: int, code: str, retry: bool = False, **told: object) -> None:
        cls.status, cls.code = status, code
        for name, value in told.items():
            setattr(cls, name, value)
        if retry:
            cls.headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}

    def __init__(self, message: str = "", param: str | None = None) -> None:
        super().__init__(message)
        self.param = self.param if param is None else param

    def text(self) -> ErrorText:
        return ErrorText(str(self), self.code, self.type, self.param)


class UpstreamUnreachableError(ProxyError, status=502, code="upstream_unreachable"):
    """The upstream cannot be reached, or it closed the connection before it sent a response."""


class UpstreamTimeoutError(ProxyError, status=504, code="upstream_timeout"):
    """The upstream did not respond in time."""


class OverloadedError(ProxyError, status=503, code="overloaded", closes=True, retry=True):
    """More requests, more text or more work at once than `limits` allows. The rest of the request need not be read."""


class ClientLimitError(ProxyError, status=429, code="client_limit_reached", outcome="limited", retry=True):
    """A client has too many requests in flight. Not 503, at which balancers drop an instance for all clients."""


class ClientBudgetError(ProxyError, status=429, code="client_budget_spent", outcome="limited", retry=True):
    """One client has spent its budget. It is new in `seconds`."""

    def __init__(self, message: str, seconds: int = RETRY_AFTER_SECONDS) -> None:
        super().__init__(message)
        self.headers = {"Retry-After": str(seconds)}


class UpstreamInvalidError(ProxyError, status=502, code="upstream_invalid"):
    """The upstream's response is not valid HTTP, or exceeds a limit."""


class BadFramingError(ProxyError, status=400, code="bad_framing", closes=True):
    """It is not certain where the request ends, so its connection must not be used again."""


class UnreadableRequestError(ProxyError, status=400, code="unreadable_request", closes=True):
    """The client sent something that is not an HTTP request."""


class HeadTooLargeError(ProxyError, status=431, code="head_too_large", closes=True):
    """The request has too many header fields, or its target and header fields are too long."""


class SiteNotAllowedError(ProxyError, status=403, code="site_not_allowed", closes=True):
    """A web page of another site sent the request, or may have sent it."""


class PagesClosedError(ProxyError, status=403, code="pages_closed"):
    """Our own pages have no key that opens them. No password helps, so browsers must not ask for one."""


class PathNotAllowedError(ProxyError, status=404, code="path_not_allowed"):
    """The operator's own key must not be sent to this path."""


class UnauthorizedError(ProxyError, status=401, code="invalid_api_key"):
    """The request has no valid client key. Status and code are those of OpenAI's API, which clients recognise."""

    headers = MappingProxyType({"WWW-Authenticate": "Bearer"})


class PageUnauthorizedError(UnauthorizedError, status=401, code="invalid_api_key"):
    """One of our own pages needs a token or key. Browsers then ask for a password."""

    headers = MappingProxyType({"WWW-Authenticate": 'Basic realm="trimtab", charset="UTF-8"'})


class WorkerSilentError(ProxyError, status=503, code="worker_silent", retry=True):
    """What workers share cannot be read or written now, so something was not done, or in part only."""


class NoSuchPageError(ProxyError, status=404, code="not_found"):
    """The path under /trimtab does not exist."""


class BodyTooLargeError(ProxyError, status=413, code="body_too_large", closes=True):
    """What a caller wants compacted is longer than `limits` allows. A request to a model would pass uncompacted."""


class UndecodableBodyError(ProxyError, status=400, code="undecodable_body"):
    """What a caller wants compacted is no request of a known dialect."""


class SlowRequestError(ProxyError, status=408, code="request_timeout", closes=True):
    """The client stopped sending its request, or sent it too slowly."""


class MethodNotAllowedError(ProxyError, status=405, code="method_not_allowed"):
    """CONNECT, TRACE if the upstream would then repeat the operator's own key, or a method that an address lacks."""

    def __init__(self, message: str, allowed: str = "") -> None:
        super().__init__(message)
        self.headers = {"Allow": allowed} if allowed else {}


class ContextExceededError(ProxyError, status=400, code=PROMPT_TOO_LONG, type="invalid_request_error"):
    """No rule could make the request fit the window. Status and code make clients compact by themselves.

    tokens: of the prompt after compaction. context_cost: what it consists of, what was decided, and
    what would have to shrink.
    """

    def __init__(
        self,
        message: str,
        tokens: int | None = None,
        limit_tokens: int | None = None,
        context_cost: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.tokens, self.limit_tokens, self.context_cost = tokens, limit_tokens, context_cost

    def text(self) -> ErrorText:
        more = {} if self.context_cost is None else {"context_cost": self.context_cost}
        return replace(super().text(), tokens=self.tokens, limit_tokens=self.limit_tokens, more=more)


class UnpairedToolCallsError(ProxyError, status=400, code="unpaired_tool_calls", type="invalid_request_error"):
    """The request has a tool call without its result, or a result without its call, and the policy refuses that."""


class InvalidQueryError(ProxyError, status=400, code="invalid_query"):
    """A parameter of the query of one of our own pages has a value that it cannot have."""


class UnknownProfileError(ProxyError, status=400, code="unknown_profile", param="x-trimtab-profile"):
    """The request names a profile that the configuration does not have."""


class UnknownCompactError(ProxyError, status=400, code="unknown_compact", param="x-trimtab-compact"):
    """The request asks for a cut in a form that does not exist."""


class UnknownKeepError(ProxyError, status=400, code="unknown_keep", param="x-trimtab-keep"):
    """The request names what is to be kept in a form that does not exist."""


class UnknownModeError(ProxyError, status=400, code="unknown_mode", param="x-trimtab-mode"):
    """The request names a mode that does not exist."""
