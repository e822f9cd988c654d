"""Spans, as the rest of trimtab sees them."""

import pytest

from trimtab.proxy.telemetry.spans import describe_server


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
