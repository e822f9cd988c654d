"""The log: one line for each event, JSON when nobody is looking at a terminal.

Law: no message text, no credential, no value that only a client chose.
"""

import sys
from typing import Any

import orjson
import structlog


def configure_log() -> None:
    """Set the process up to log to standard error."""
    processors: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    factory: Any
    if sys.stderr.isatty():
        processors.append(structlog.dev.ConsoleRenderer())
        factory = structlog.PrintLoggerFactory(sys.stderr)
    else:
        processors.append(structlog.processors.JSONRenderer(serializer=orjson.dumps))
        factory = structlog.BytesLoggerFactory(sys.stderr.buffer)
    structlog.configure(processors=processors, logger_factory=factory, cache_logger_on_first_use=True)


def get_log() -> Any:
    """The logger: `log.info("event", key=value)`."""
    return structlog.get_logger()
