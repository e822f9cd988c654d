"""What spans say of an upstream, and what the configuration says about traces."""

import os
import subprocess
import sys

import pytest

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.telemetry.spans import describe_server, open_spans

MODULES = "[name for name in sys.modules if name.partition('.')[0] in ('opentelemetry', 'requests')]"


def test_a_host_names_its_provider() -> None:
    """The dialect decides if the host is not known."""
    for host, dialect, provider in (
        ("API.OpenAI.com.", "chat", "openai"),
        ("mine.openai.azure.com", "chat", "azure.ai.openai"),
        ("api.anthropic.com", "messages", "anthropic"),
        ("api.x.ai", "responses", "x_ai"),
        ("notx.ai", "chat", "openai"),
        ("bedrock-runtime.eu-west-1.amazonaws.com", "chat", "aws.bedrock"),
        ("gateway.internal", "messages", "anthropic"),
        (None, "chat", "openai"),
    ):
        told = describe_server(host, 443, dialect)
        assert told["gen_ai.provider.name"] == provider
        assert ("server.address" in told, "server.port" in told) == (host is not None, host is not None)


def test_without_a_collector_no_library_is_loaded() -> None:
    program = f"""
import sys
from trimtab.proxy.config.load import load_config
from trimtab.proxy.server.app import run_proxy
from trimtab.proxy.telemetry.spans import open_spans
spans = open_spans(load_config(settings=[], environment={{}}), None)
print(spans, {MODULES})
"""
    variables = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "otlp"}
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None []"


@pytest.mark.parametrize(
    "missing", ["opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter"]
)
def test_a_missing_package_is_told_with_what_to_install(missing, monkeypatch, log) -> None:
    config = load_config(settings=["tracing.otlp_endpoint=http://127.0.0.1:9"], environment={})
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "trimtab.proxy.telemetry.otlp", raising=False)
    with pytest.raises(ConfigError, match=r"^tracing\.otlp_endpoint: .*pip install 'trimtab\[otel\]'$"):
        open_spans(config, log)
