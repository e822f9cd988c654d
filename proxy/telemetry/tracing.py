"""Opens what the configuration says about traces."""

from typing import TYPE_CHECKING, Any

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.schema import Config
from trimtab.proxy.telemetry.metrics import read_version

if TYPE_CHECKING:
    from trimtab.proxy.telemetry.otlp import Spans


def open_spans(config: Config, log: Any) -> "Spans | None":
    """The spans of this process; None without `tracing.otlp_endpoint`. Raises ConfigError if a package is missing."""
    endpoint = config.tracing.otlp_endpoint
    if endpoint is None:
        return None
    require_exporter(config)
    from trimtab.proxy.telemetry.otlp import Spans  # noqa: PLC0415 - optional packages, and slow to import

    return Spans(endpoint, config.tracing.service_name, read_version(), log)


def require_exporter(config: Config) -> None:
    """Raise ConfigError if the configuration asks for traces and a package is missing. No collector is asked."""
    if config.tracing.otlp_endpoint is None:
        return
    try:
        import trimtab.proxy.telemetry.otlp  # noqa: F401, PLC0415 - optional packages, and slow to import
    except ImportError as error:
        message = "tracing.otlp_endpoint: traces need packages that are not installed: pip install 'trimtab[otel]'"
        raise ConfigError(message) from error
