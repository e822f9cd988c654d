"""Every error that the proxy itself answers with, and their OpenAI form.

Law: each says what was wrong, where, and what to do; none carries message text or a credential.
"""

import orjson


class ProxyError(Exception):
    """An error with an HTTP status and a stable code."""

    status = 500
    code = "internal_error"
    type = "trimtab_error"
    param: str | None = None

    def body(self) -> bytes:
        """The error as OpenAI error JSON."""
        error = {"message": str(self), "type": self.type, "param": self.param, "code": self.code}
        return orjson.dumps({"error": error})


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


class SlowRequestError(ProxyError):
    """The client did not go on sending its request."""

    status = 408
    code = "request_timeout"


class MethodNotAllowedError(ProxyError):
    """A method that a proxy in front of one upstream has no use for."""

    status = 405
    code = "method_not_allowed"


class ContextExceededError(ProxyError):
    """Nothing could bring the request within the window. In the form that clients recognise."""

    status = 400
    code = "context_length_exceeded"
    type = "invalid_request_error"
    param = "messages"


class UnknownProfileError(ProxyError):
    """The request named a profile that the configuration does not have."""

    status = 400
    code = "unknown_profile"
    param = "x-trimtab-profile"


class ConfigError(Exception):
    """The configuration is wrong; the message has one line for each thing that is."""
