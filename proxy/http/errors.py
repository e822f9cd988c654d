"""Every error that the proxy itself answers with.

Law: each says what was wrong, where, and what to do; none carries message text or a credential.
"""

from collections.abc import Mapping
from typing import ClassVar

from proxy.wire.codec import PROMPT_TOO_LONG, ErrorText

RETRY_AFTER_SECONDS = 1
NO_MEMORY_LEFT = "too much text in flight (limits.max_memory_bytes); try again"
NO_THREAD_LEFT = "too much work in flight (limits.max_plan_seconds); try again"


class ProxyError(Exception):
    """An error with an HTTP status and a stable code; `headers` go with its answer, which may close the connection."""

    status = 500
    code = "internal_error"
    type = "trimtab_error"
    param: str | None = None
    headers: ClassVar[Mapping[str, str]] = {}
    closes = False

    def __init_subclass__(cls, *, status: int, code: str) -> None:
        cls.status, cls.code = status, code

    def text(self) -> ErrorText:
        """The error as a codec can write it."""
        return ErrorText(str(self), self.code, self.type, self.param)


class UpstreamUnreachableError(ProxyError, status=502, code="upstream_unreachable"):
    """No connection to the upstream, or it went away before it answered."""


class UpstreamTimeoutError(ProxyError, status=504, code="upstream_timeout"):
    """The upstream did not answer in time."""


class OverloadedError(ProxyError, status=503, code="overloaded"):
    """More requests, more text, or more work at once than `limits` allows for."""

    headers: ClassVar[Mapping[str, str]] = {"Retry-After": str(RETRY_AFTER_SECONDS)}
    closes = True  # the rest of the request is not worth reading


class UpstreamInvalidError(ProxyError, status=502, code="upstream_invalid"):
    """The upstream's answer is none that HTTP knows."""


class BadFramingError(ProxyError, status=400, code="bad_framing"):
    """It is not certain where the request ends; its connection must not be used again."""

    closes = True


class UnreadableRequestError(ProxyError, status=400, code="unreadable_request"):
    """What was sent is no request that HTTP knows."""

    closes = True


class HeadTooLargeError(ProxyError, status=431, code="head_too_large"):
    """The target and header fields of a request are too many, or too long."""

    closes = True


class SiteNotAllowedError(ProxyError, status=403, code="site_not_allowed"):
    """A page of another site has sent the request, or may have."""

    closes = True


class PathNotAllowedError(ProxyError, status=404, code="path_not_allowed"):
    """A path to which the operator's own key does not go."""


class UnauthorizedError(ProxyError, status=401, code="invalid_api_key"):
    """The request shows no key that this proxy knows. As OpenAI's clients know it."""

    headers: ClassVar[Mapping[str, str]] = {"WWW-Authenticate": "Bearer"}


class NoSuchPageError(ProxyError, status=404, code="not_found"):
    """A path under /trimtab where there is no page."""


class SlowRequestError(ProxyError, status=408, code="request_timeout"):
    """The client did not go on sending its request."""

    closes = True


class MethodNotAllowedError(ProxyError, status=405, code="method_not_allowed"):
    """A method that a proxy in front of one upstream has no use for."""


class ContextExceededError(ProxyError, status=400, code=PROMPT_TOO_LONG):
    """Nothing could bring the request within the window. In the form that clients recognise."""

    type = "invalid_request_error"


class UnknownProfileError(ProxyError, status=400, code="unknown_profile"):
    """The request named a profile that the configuration does not have."""

    param = "x-trimtab-profile"


class UnknownModeError(ProxyError, status=400, code="unknown_mode"):
    """The request named a mode that does not exist."""

    param = "x-trimtab-mode"
