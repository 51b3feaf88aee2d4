"""Traces: what the server does for one call, as spans that begin and end.

`Tracer` and `Span` do nothing themselves: they are used when tracing is off, and cost a call or two. An adapter
(`turnwire.telemetry.tracing`) overrides them. A span that is entered with `with` is the current span of its task and of
the tasks that start meanwhile; spans that start then become its children.

The current span is kept here and not in the context of OpenTelemetry, because libraries read that one: the SDKs of MCP
and of providers would send the trace to their servers unrequested.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from enum import StrEnum
from types import TracebackType
from typing import Self

from turnwire.domain.errors import DomainError

Value = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, Value | None]
"""Values by name. None leaves the attribute out."""


class SpanKind(StrEnum):
    """The side of a call that a span describes."""

    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"


class Span:
    """One piece of work; a context manager, entered at most once. This one is part of no trace and records nothing."""

    @property
    def is_recording(self) -> bool:
        """Whether attributes are kept; check it before computing costly ones."""
        return False

    @property
    def traceparent(self) -> str:
        """The position of this span in its trace, as the W3C header `traceparent`; "" when it is part of no trace."""
        return ""

    @property
    def trace_id(self) -> str:
        """The trace as 32 hexadecimal digits; "" when it is part of no trace."""
        return ""

    @property
    def span_id(self) -> str:
        """The span as 16 hexadecimal digits; "" when it is part of no trace."""
        return ""

    def set(self, attributes: Attributes) -> None:
        """Adds attributes; later values replace earlier ones. Has no effect once the span has ended."""

    def fail(self, error_type: str) -> None:
        """Marks the work as failed.

        Args:
            error_type: A word from a small set, never a message: messages may quote what people wrote.
        """

    def end(self) -> None:
        """Ends the span. Idempotent. Leaving its context ends it too."""

    def __enter__(self) -> Self:
        """Makes this the current span."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends the span. An exception marks it as failed; a cancelled task does not, it gets an attribute."""


class TracedSpan(Span):
    """A span that is part of a trace: base of the adapters' spans."""

    _token: Token[Span] | None = None

    def __enter__(self) -> Self:
        """See `Span`."""
        self._token = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """See `Span`."""
        if self._token is not None:
            _current.reset(self._token)
            self._token = None
        if isinstance(error, Exception):
            self.fail(error_type(error))
        elif error is not None:
            self.set({"turnwire.cancelled": True})
        self.end()


class Tracer:
    """Starts spans. This one starts none."""

    @property
    def records_content(self) -> bool:
        """Whether prompts, answers, and arguments and results of tools may become attributes."""
        return False

    def start(
        self,
        name: str,
        attributes: Attributes | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: str | None = None,
    ) -> Span:
        """Starts a span. It becomes the current one only when it is entered; the caller ends it.

        Args:
            name: The operation, from a small set: no ids.
            attributes: Attributes known at the start.
            kind: Which side of a call it describes.
            parent: The `traceparent` of the span it belongs to; one that is not valid starts a new trace, and so does
                "". None takes the current span.
        """
        return NO_SPAN


NO_SPAN = Span()
NO_TRACER = Tracer()

_current: ContextVar[Span] = ContextVar("turnwire_span", default=NO_SPAN)


def current_span() -> Span:
    """Returns the current span of the task."""
    return _current.get()


def leave_trace() -> None:
    """Detaches the current task from its trace: for a task that outlives the work that started it."""
    _current.set(NO_SPAN)


def error_type(error: BaseException) -> str:
    """Returns the word for an error: its reason, or the name of its class."""
    return error.reason if isinstance(error, DomainError) else type(error).__name__
