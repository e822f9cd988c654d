"""Spans, as the rest of trimtab sees them."""

import pytest

from trimtab.proxy.telemetry.spans import NO_SPAN, NO_SPANS, describe_server, find_current, set_current


@pytest.mark.parametrize(
    ("host", "dialect", "provider"),
    [
        ("api.openai.com", "chat", "openai"),
        ("API.OpenAI.com.", "chat", "openai"),
        ("mine.openai.azure.com", "chat", "azure.ai.openai"),
        ("api.anthropic.com", "messages", "anthropic"),
        ("api.x.ai", "responses", "x_ai"),
        ("notx.ai", "chat", "openai"),
        ("bedrock-runtime.eu-west-1.amazonaws.com", "chat", "aws.bedrock"),
        ("127.0.0.1", "chat", "openai"),
        ("gateway.internal", "messages", "anthropic"),
        (None, "chat", "openai"),
    ],
)
def test_a_host_names_its_provider(host, dialect, provider) -> None:
    """The dialect decides if the host is not known."""
    told = describe_server(host, 443, dialect)
    assert told["gen_ai.provider.name"] == provider
    assert ("server.address" in told, "server.port" in told) == (host is not None, host is not None)


async def test_without_tracing_no_span_is_made() -> None:
    """Whatever is asked for is the same null span, and it does nothing."""
    headers = {"traceparent": "x"}
    span = NO_SPANS.start("chat", {}, [("traceparent", "y")])
    span.write_into(headers)
    span.note({"a": 1})
    span.note_moment("b")
    span.end(error="c")
    await NO_SPANS.close()

    assert (span, NO_SPANS.start_within(span, "chat", {}), find_current()) == (NO_SPAN, NO_SPAN, NO_SPAN)
    assert (headers, span.has_children) == ({"traceparent": "x"}, False)
    set_current(span)
    assert find_current() is span
