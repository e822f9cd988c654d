"""The log: one line of JSON for each event, or text for a person at a terminal; and a line at the terminal's bottom.

Law: no message text and no credential. In text form, values contain no line break and no control sequence. A program
whose standard error is a file or a pipe gets no control sequence. A log line clears the live line first, so the two
never mix. Each write is one system call, because several processes may write to the same terminal.

What the line of a request says is a table in account/outcome.py.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor


WHOLE_BYTES = 4096  # Larger writes of several processes to a pipe mix. Source: PIPE_BUF of Linux.
LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("auto", "json", "text")  # `auto`: text on a terminal, else JSON
SHORT_ID_CHARS = 8  # chosen: enough to find a request in the log


class _JsonLog:
    """Writes JSON without structlog, whose processors take 12 us for each request, and its import 40 ms."""

    def __init__(self, lines: "JsonLines", level: str) -> None:
        first = LEVELS.index(level)
        self.is_detailed = first == 0
        for at, name in enumerate(LEVELS):
            setattr(self, name, partial(_write_fields, lines, name) if at >= first else lambda _, **__: None)


def _write_fields(lines: "JsonLines", level: str, event: str, /, **fields: Any) -> None:
    lines.write(level, event, fields)


_configured: list[_JsonLog] = []  # The log as JSON, if the log of this process is that


class _Discreet(logging.Handler):
    """Logs source and type of libraries' log records, without their text, which may quote a request and its keys."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[0] if record.exc_info else None
        name = error.__name__ if error is not None else None
        get_log().warning("library", source=record.name, library_level=record.levelname.lower(), error=name)


def configure_log(
    level: str = "info", form: str = "auto", *, file: BinaryIO | None = None, clears_line: bool = False
) -> None:
    """Log from this level on: to standard error in one of FORMATS, or as JSON to `file`. clears_line: before a line."""
    logging.root.handlers = [_Discreet(logging.WARNING)]
    _configured.clear()
    if file is None and (form == "text" or (form == "auto" and sys.stderr.isatty())):
        import structlog  # noqa: PLC0415 - as below

        processors = _write_text()
        if clears_line:
            processors.append(lambda _logger, _method, line: f"{CLEAR_LINE}{line}")
        structlog.configure(
            processors=[structlog.processors.add_log_level, *processors],
            wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
            logger_factory=structlog.WriteLoggerFactory(sys.stderr),
            cache_logger_on_first_use=True,
        )
        return
    _configured.append(_JsonLog(JsonLines(file or sys.stderr.buffer), level))


def reset_log() -> None:
    _configured.clear()


def get_log() -> Any:
    if _configured:
        return _configured[0]
    import structlog  # noqa: PLC0415 - as below

    return structlog.get_logger()


def escape(text: str) -> str:
    """Replace each unprintable character by its Python escape, so that the text stays on one line."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text
    )


def _write_text() -> "list[Processor]":
    """Processors for text. A terminal shows the time of day only; a file is read later, so it gets the date too."""
    import structlog  # noqa: PLC0415 - slow, and JSON needs none of it

    is_terminal = sys.stderr.isatty()
    times = structlog.processors.TimeStamper(fmt="%H:%M:%S" if is_terminal else "%Y-%m-%dT%H:%M:%S%z", utc=False)
    colours = is_terminal and not os.environ.get("NO_COLOR")
    return [times, _simplify, structlog.dev.ConsoleRenderer(0, colors=colours, sort_keys=False, pad_level=False)]


def _simplify(_logger: Any, _method: str, event: "EventDict") -> "EventDict":
    """Make an event fit for a terminal: a request as one line, no level if it is `info`, no control characters."""
    worker = {"worker": event["worker"]} if "worker" in event else {}
    shown = {"event": describe_request(event)} | worker if event["event"] == "request" else event
    kept = {"timestamp": event["timestamp"], "level": event["level"]}
    if kept["level"] == "info":
        del kept["level"]
    values = {key: value for key, value in shown.items() if key not in {"timestamp", "level"}}
    return kept | {key: escape(value) if isinstance(value, str) else value for key, value in values.items()}


def describe_request(fields: Mapping[str, Any]) -> str:
    """A request in one line: model, status, outcome, tokens, rules, time, client, path, upstream, start of the id."""
    match, seconds = fields.get("match"), fields["seconds"]
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
        f"{seconds:.1f}s" if seconds >= 1 else f"{seconds * 1000:.0f}ms",
        fields.get("client"),
        f"{fields['method']} {fields['path']}",
        f"→ {fields['upstream']}" if fields.get("upstream") else None,
        fields["request_id"][:SHORT_ID_CHARS],
    )
    line = " ".join(str(part) for part in parts if part)
    return f"{line}: {fields['reason']}" if fields.get("reason") else line


def _describe_tokens(fields: Mapping[str, Any]) -> str | None:
    """Prompt tokens as received, and as forwarded if that differs."""
    original, sent = fields.get("original_tokens"), fields.get("sent_tokens")
    if original is None:
        return None
    went_on = f"→{sent}" if sent not in {0, original} else ""
    return f"{original}{went_on} tokens (limit {fields['limit_tokens']})"


class JsonLines:
    """Writes events as lines of JSON, in order. Thread-safe. Those logged `together` wait for the end of that block."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._waiting: list[bytes] = []

    def write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        members = {**fields, "event": event, "level": level, "timestamp": datetime.now(UTC)}
        line = orjson.dumps(members, default=repr, option=orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE)
        with self._lock:
            self._waiting.append(line)
        if together.lines is None or together.thread != threading.get_ident():
            self.flush()
        else:
            together.lines.add(self)

    def flush(self) -> None:
        """Write the waiting lines. A closed stream must not fail a request, so its errors are ignored."""
        with self._lock:
            lines, self._waiting = self._waiting, []
            try:
                for piece in _gather(lines) if len(lines) > 1 else lines:
                    self._stream.write(piece)
                    self._stream.flush()
            except (OSError, ValueError):
                return


class _Together:
    """A block of one thread, whose lines of JSON are written by one call, at its end."""

    def __init__(self) -> None:
        self.lines: set[JsonLines] | None = None
        self.thread = 0

    def __enter__(self) -> None:
        self.thread, self.lines = threading.get_ident(), set()

    def __exit__(self, *_: object) -> None:
        lines, self.lines = self.lines or (), None
        for each in lines:
            each.flush()


together = _Together()


def _gather(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Join whole lines up to WHOLE_BYTES; a longer line stays alone."""
    piece: list[bytes] = []
    size_bytes = 0
    for line in lines:
        if piece and size_bytes + len(line) > WHOLE_BYTES:
            yield b"".join(piece)
            piece, size_bytes = [], 0
        piece.append(line)
        size_bytes += len(line)
    if piece:
        yield b"".join(piece)


CLEAR_LINE = "\r\x1b[K"  # Moves the cursor to the beginning of the line and clears it. Source: ECMA-48, CR and EL.
DUMB = frozenset({"", "dumb", "unknown"})  # TERM without control sequences. Source: terminfo(5).
MIN_COLUMNS = 20  # Chosen: in a narrower terminal, the line would have no figure
USUAL_COLUMNS = 80  # For a terminal that does not tell its size. Source: the size of the VT100.


def is_terminal() -> bool:
    return sys.stderr.isatty()


def shows_text(form: str) -> bool:
    """Whether a person reads standard error: a terminal, if the log's form there is text. `form`: one of FORMATS."""
    return is_terminal() and form in {"auto", "text"}


def can_rewrite(form: str) -> bool:
    """Whether a line there can be written again and again. NO_COLOR says that the user wants no control sequences."""
    return shows_text(form) and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in DUMB


class LiveLine:
    def __init__(self) -> None:
        self._text = ""

    def show(self, text: str) -> None:
        columns = max(_read_columns(), MIN_COLUMNS)
        self._text = text if len(text) < columns else f"{text[: columns - 2]}…"
        self._write(f"{CLEAR_LINE}{self._text}")

    def end(self) -> None:
        if self._text:
            self._write("\n")
            self._text = ""

    def _write(self, text: str) -> None:
        """Write at once. A terminal that is gone must stop no proxy."""
        try:
            os.write(sys.stderr.fileno(), text.encode())
        except OSError:
            self._text = ""


def _read_columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or USUAL_COLUMNS
    except OSError:
        return USUAL_COLUMNS
