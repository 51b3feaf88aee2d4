"""Logs: one line per event on stderr, as text or JSON.

Turnwire's own code logs through `structlog.get_logger()` with facts as keywords, and never logs prompts, answers, tool
output, file content or keys. Libraries log through `logging`. Only their warnings and errors are written, whatever
their level: at DEBUG, SDKs write whole requests and aiosqlite whole statements with their values. For the same reason,
tracebacks omit the values of local variables.

Clients can cause some of these lines, so the lines of each library are limited per second: gRPC writes a traceback for
each call that is cut while it is answered. A client that leaves just before its call ends is not an error, and our own
line about the call reports its end; gRPC's line is left out.
"""

import logging
import sys
import time
from collections import defaultdict
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any, Literal, TextIO, cast

import msgspec
import structlog
from structlog.typing import Processor

from turnwire.ports.telemetry.line_limit import LineLimit
from turnwire.ports.telemetry.tracing import current_span
from turnwire.telemetry.logs.output import LogOutput

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_encoder = msgspec.json.Encoder(enc_hook=str)


def configure_logging(
    level: Literal["debug", "info", "warning", "error"],
    format: Literal["text", "json"],
    output: LogOutput | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Sets up structlog and `logging` for the whole process. Calling it again replaces the setup.

    Args:
        level: The lowest level of Turnwire's own lines to write. For libraries it is at least WARNING.
        format: "json" writes one object per line with `time` (ISO 8601, UTC), `level` and `event`; "text" is readable.
        output: The destination of lines; None is standard error, whose reader can block the process.
        clock: In seconds.
    """
    stream = sys.stderr if output is None else output
    shared: list[Processor] = [
        _add_trace,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    renderers = _json_renderers() if format == "json" else _text_renderers(is_terminal=stream.isatty())
    structlog.configure(
        processors=[*shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", stream)),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr) if output is None else output
    handler.addFilter(_tells_more_than_a_client_that_left)
    handler.addFilter(_FewLines(clock))
    _configure_libraries(handler, max(_LEVELS[level], logging.WARNING), [*shared, _add_logger], renderers)


def _tells_more_than_a_client_that_left(record: logging.LogRecord) -> bool:
    """Returns whether a line is not about the status of a call that gRPC could no longer send."""
    error = record.exc_info[0] if record.exc_info else None
    return error is None or error.__name__ != "ExecuteBatchError"


class _FewLines(logging.Filter):
    """Passes ten lines of each library in each second; the next line that passes has the number of lines left out."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._limits: defaultdict[str, LineLimit] = defaultdict(partial(LineLimit, clock))

    def filter(self, record: logging.LogRecord) -> bool:
        left_out = vars(record)["left_out"] = self._limits[record.name].take()
        return left_out is not None


def _configure_libraries(
    handler: logging.Handler, level: int, shared: list[Processor], renderers: list[Processor]
) -> None:
    # The handler filters too: OPENAI_LOG and ANTHROPIC_LOG make the SDKs lower their loggers' levels when imported.
    handler.setLevel(level)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old.formatter, structlog.stdlib.ProcessorFormatter):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)


def _add_trace(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Adds `trace_id` and `span_id` to lines that are written while a span is current."""
    span = current_span()
    if trace_id := span.trace_id:
        event["trace_id"], event["span_id"] = trace_id, span.span_id
    return event


def _add_logger(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    record = event["_record"]
    event["logger"] = record.name
    if left_out := vars(record)["left_out"]:
        event["lines_left_out"] = left_out
    return event


def _in_print(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escapes characters that would move a terminal's cursor, break a line or cannot be encoded: errors quote foreign
    text.
    """
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            kept = "\n" if key == "exception" else ""
            event[key] = "".join(c if c.isprintable() or c == kept else _escaped(c) for c in value)
    return event


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _json_renderers() -> list[Processor]:
    return [structlog.processors.format_exc_info, _in_print, _json_line]


def _json_line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    return _encoder.encode(event).decode()


def _text_renderers(*, is_terminal: bool) -> list[Processor]:
    if not is_terminal:
        # takes half the time of structlog's console renderer, and every call writes a line
        return [
            structlog.processors.format_exc_info,
            _in_print,
            structlog.processors.LogfmtRenderer(key_order=("time", "level", "event"), bool_as_flag=False),
        ]
    # The default formatter prints local variables when rich is installed, and these include prompts.
    return [
        structlog.processors.format_exc_info,
        _in_print,
        structlog.dev.ConsoleRenderer(
            colors=is_terminal,
            exception_formatter=structlog.dev.plain_traceback,
            timestamp_key="time",
            pad_event_to=0,
        ),
    ]
