"""The log: one line for each event, JSON when nobody is looking at a terminal.

Law: no message text, no credential, no value that only a client chose.
"""

import logging
import sys
from typing import Any

import orjson
import structlog


class _Discreet(logging.Handler):
    """What libraries log, as events: where from and what type of error, never what they say of it.

    An HTTP server's own words quote the request that it could not read, its headers and its key.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write the event."""
        error = record.exc_info[0] if record.exc_info else None
        name = error.__name__ if error is not None else None
        get_log().warning("library", source=record.name, level_there=record.levelname.lower(), error=name)


def configure_log() -> None:
    """Set the process up to log to standard error."""
    logging.root.handlers = [_Discreet(logging.WARNING)]
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
