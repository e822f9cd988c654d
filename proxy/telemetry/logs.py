"""The log: JSON, a line for each event, or text as a person reads it on a terminal.

Law: no message text and no credential. In text nothing ends a line early, and nothing tells a terminal what to do.
"""

import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

from proxy.telemetry.json_lines import JsonLines

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("auto", "json", "text")
"""`auto`: text on a terminal, else JSON."""
SHORT_ID_CHARS = 8


class _JsonLog(structlog.BoundLoggerBase):
    """A logger that writes JSON by itself: a chain of processors takes 12 us for each request."""

    def debug(self, event: str, **fields: Any) -> None:
        """Log an event."""
        self._logger.write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log an event."""
        self._logger.write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log an event."""
        self._logger.write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log an event."""
        self._logger.write("error", event, fields)


class _Discreet(logging.Handler):
    """What libraries log, as events: where from and what type of error, never what they say of it.

    An HTTP server's own words quote the request that it could not read, its headers and its key.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write the event."""
        error = record.exc_info[0] if record.exc_info else None
        name = error.__name__ if error is not None else None
        get_log().warning("library", source=record.name, level_there=record.levelname.lower(), error=name)


def configure_log(level: str = "info", form: str = "auto") -> None:
    """Set the process up to log to standard error what has at least this level; `form` is one of FORMATS."""
    logging.root.handlers = [_Discreet(logging.WARNING)]
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    if as_text:
        structlog.configure(
            processors=[structlog.processors.add_log_level, *_write_text()],
            wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
            cache_logger_on_first_use=True,
        )
        return
    lines = JsonLines(sys.stderr.buffer)
    structlog.configure(
        processors=[],
        wrapper_class=_from_level(level),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=True,
    )


def _from_level(level: str) -> type[_JsonLog]:
    """The logger that logs from a level on."""

    def leave_out(_log: _JsonLog, _event: str, **_fields: Any) -> None:
        """Below the level."""

    return type("_JsonLog", (_JsonLog,), dict.fromkeys(LEVELS[: LEVELS.index(level)], leave_out))


def get_log() -> Any:
    """The logger: `log.info("event", key=value)`."""
    return structlog.get_logger()


def escape(text: str) -> str:
    """A text on one line, in which each character that cannot be printed is written as Python would write it."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text
    )


def _write_text() -> list[Processor]:
    """The time of day is enough on a terminal; a file is read on another day."""
    is_terminal = sys.stderr.isatty()
    times = structlog.processors.TimeStamper(fmt="%H:%M:%S" if is_terminal else "%Y-%m-%dT%H:%M:%S%z", utc=False)
    colours = is_terminal and not os.environ.get("NO_COLOR")
    return [times, _simplify, structlog.dev.ConsoleRenderer(0, colors=colours, sort_keys=False, pad_level=False)]


def _simplify(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """The event as a terminal may have it: a request as one sentence, and no level where it is the usual one."""
    worker = {"worker": event["worker"]} if "worker" in event else {}
    shown = {"event": describe_request(event)} | worker if event["event"] == "request" else event
    kept = {"timestamp": event["timestamp"], "level": event["level"]}
    if kept["level"] == "info":
        del kept["level"]
    values = {key: value for key, value in shown.items() if key not in {"timestamp", "level"}}
    return kept | {key: escape(value) if isinstance(value, str) else value for key, value in values.items()}


def describe_request(fields: Mapping[str, Any]) -> str:
    """A request's event in one line: model, how it went, tokens, rules, time, whereto, and the beginning of its id."""
    match = fields.get("match")
    rules = ",".join(item["rule"] for item in fields.get("decisions", ()))
    parts = (
        fields.get("model"),
        f"({match})" if match not in {None, fields.get("model")} else None,
        fields["status"] or "-",
        fields["outcome"],
        fields.get("error"),
        _describe_tokens(fields),
        rules,
        f"{fields['completion_tokens']} out" if fields.get("completion_tokens") is not None else None,
        _describe_seconds(fields["seconds"]),
        f"{fields['method']} {fields['path']}",
        f"→ {fields['upstream']}" if fields.get("upstream") else None,
        fields["request_id"][:SHORT_ID_CHARS],
    )
    line = " ".join(str(part) for part in parts if part)
    return f"{line}: {fields['reason']}" if fields.get("reason") else line


def _describe_tokens(fields: Mapping[str, Any]) -> str | None:
    """Prompt tokens as they came, and as they went on if that is another number."""
    original, sent = fields.get("original_tokens"), fields.get("sent_tokens")
    if original is None:
        return None
    went_on = f"→{sent}" if sent not in {0, original} else ""
    return f"{original}{went_on} tokens (limit {fields['limit_tokens']})"


def _describe_seconds(seconds: float) -> str:
    return f"{seconds:.1f}s" if seconds >= 1 else f"{seconds * 1000:.0f}ms"
