"""Error responses that the proxy itself writes."""

import orjson
import pytest

from trimtab.proxy.http.errors import (
    ContextExceededError,
    OverloadedError,
    ProxyError,
    UnknownModeError,
    UnknownProfileError,
    UpstreamTimeoutError,
    UpstreamUnreachableError,
)
from trimtab.proxy.wire.chat.codec import CHAT


@pytest.mark.parametrize(
    ("error", "status", "kind", "param", "code"),
    [
        (UpstreamUnreachableError, 502, "trimtab_error", None, "upstream_unreachable"),
        (UpstreamTimeoutError, 504, "trimtab_error", None, "upstream_timeout"),
        (OverloadedError, 503, "trimtab_error", None, "overloaded"),
        (ContextExceededError, 400, "invalid_request_error", "messages", "context_length_exceeded"),
        (UnknownProfileError, 400, "trimtab_error", "x-trimtab-profile", "unknown_profile"),
        (UnknownModeError, 400, "trimtab_error", "x-trimtab-mode", "unknown_mode"),
        (ProxyError, 500, "trimtab_error", None, "internal_error"),
    ],
)
def test_each_error_has_its_status_and_openais_form(
    error: type[ProxyError], status: int, kind: str, param: str | None, code: str
) -> None:
    """Clients act on status and code, and parse this form. The overflow error is the one that they recognise."""
    made = error('what was wrong: "ü"')

    assert made.status == status
    assert orjson.loads(CHAT.write_error(made.text(), as_event=False)) == {
        "error": {"message": 'what was wrong: "ü"', "type": kind, "param": param, "code": code}
    }


def test_a_prompt_that_cannot_fit_is_told_with_its_figures() -> None:
    error = ContextExceededError("too long", 9000, 8000, {"system": 7})
    text = error.text()
    assert (str(error), text.message, text.tokens, text.limit_tokens) == ("too long", "too long", 9000, 8000)
    assert text.more == {"context_cost": {"system": 7}}
    assert ContextExceededError("too long").text().more == {}
