"""Every error that the proxy itself answers with.

Law: each says what was wrong, where, and what to do; none carries message text or a credential.
"""

from collections.abc import Mapping
from typing import ClassVar

from proxy.wire.codec import PROMPT_TOO_LONG, ErrorText

RETRY_AFTER_SECONDS = 1


class ProxyError(Exception):
    """An error with an HTTP status and a stable code; `headers` go with its answer, which may close the connection."""

    status = 500
    code = "internal_error"
    type = "trimtab_error"
    param: str | None = None
    headers: ClassVar[Mapping[str, str]] = {}
    closes = False

    def text(self) -> ErrorText:
        """The error as a codec can write it."""
        return ErrorText(str(self), self.code, self.type, self.param)


class UpstreamUnreachableError(ProxyError):
    """No connection to the upstream, or it went away before it answered."""

    status = 502
    code = "upstream_unreachable"


class UpstreamTimeoutError(ProxyError):
    """The upstream did not answer in time."""

    status = 504
    code = "upstream_timeout"


class OverloadedError(ProxyError):
    """More requests at once than `limits.max_concurrent_requests`."""

    status = 503
    code = "overloaded"
    headers: ClassVar[Mapping[str, str]] = {"Retry-After": str(RETRY_AFTER_SECONDS)}
    closes = True  # the rest of the request is not worth reading


class UpstreamInvalidError(ProxyError):
    """The upstream's answer is none that HTTP knows."""

    status = 502
    code = "upstream_invalid"


class BadFramingError(ProxyError):
    """It is not certain where the request ends; its connection must not be used again."""

    status = 400
    code = "bad_framing"
    closes = True


class UnauthorizedError(ProxyError):
    """The request shows no key that this proxy knows. As OpenAI's clients know it."""

    status = 401
    code = "invalid_api_key"
    headers: ClassVar[Mapping[str, str]] = {"WWW-Authenticate": "Bearer"}


class NoSuchPageError(ProxyError):
    """A path under /trimtab where there is no page."""

    status = 404
    code = "not_found"


class SlowRequestError(ProxyError):
    """The client did not go on sending its request."""

    status = 408
    code = "request_timeout"
    closes = True


class MethodNotAllowedError(ProxyError):
    """A method that a proxy in front of one upstream has no use for."""

    status = 405
    code = "method_not_allowed"


class ContextExceededError(ProxyError):
    """Nothing could bring the request within the window. In the form that clients recognise."""

    status = 400
    code = PROMPT_TOO_LONG
    type = "invalid_request_error"


class UnknownProfileError(ProxyError):
    """The request named a profile that the configuration does not have."""

    status = 400
    code = "unknown_profile"
    param = "x-trimtab-profile"


class UnknownModeError(ProxyError):
    """The request named a mode that does not exist."""

    status = 400
    code = "unknown_mode"
    param = "x-trimtab-mode"
