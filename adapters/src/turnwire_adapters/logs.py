"""Structured logs on the standard error: what happened and facts by name, never what a conversation says."""

import logging
import sys

import structlog


def configure_logs(form: str) -> None:
    """Sends the package's own lines and those of its libraries to the standard error.

    Args:
        form: "text" for people, "json" for programs.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[structlog.typing.Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if form == "json":
        # Tracebacks without the values of variables: these are what conversations say, and tokens.
        traceback = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        last += [structlog.processors.ExceptionRenderer(traceback), structlog.processors.JSONRenderer()]
    else:
        plain = structlog.dev.plain_traceback
        last += [structlog.dev.ConsoleRenderer(colors=False, exception_formatter=plain)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("turnwire_adapters").setLevel(logging.INFO)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
