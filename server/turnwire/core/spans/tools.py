"""The spans of tool calls: `execute_tool`."""

from turnwire.core.spans.content import shortened
from turnwire.domain.conversation.messages import ToolStatus, ToolUse
from turnwire.ports.telemetry.tracing import Span, Tracer
from turnwire.ports.tools import ToolOutcome

TOOL_ERROR = "tool_error"
"""The error of a call whose tool answered with an error."""


def server_tool_span(tracer: Tracer, call: ToolUse) -> Span:
    """Starts the span of a tool that the server runs now."""
    return _start(tracer, call, "extension")


def note_outcome(span: Span, tracer: Tracer, outcome: ToolOutcome) -> None:
    """Adds the result of a server's tool to its span."""
    _note_result(span, tracer, outcome.output, is_error=outcome.is_error)


class ClientToolSpans:
    """The spans of a step's client tools: each from when the client may run the tool until its result is there."""

    def __init__(self, tracer: Tracer) -> None:
        """Starts none."""
        self._tracer = tracer
        self._open: dict[int, Span] = {}

    def begin(self, index: int, call: ToolUse) -> None:
        """Starts the span of the call in one part, unless it runs already."""
        if index not in self._open:
            self._open[index] = _start(self._tracer, call, "function")

    def waiting(self) -> tuple[int, ...]:
        """Returns the parts whose spans run."""
        return tuple(self._open)

    def finish(self, index: int, call: ToolUse) -> None:
        """Ends the span of a call that has its result."""
        span = self._open.pop(index)
        is_error = call.status is ToolStatus.ERROR
        _note_result(span, self._tracer, (call.error if is_error else call.output) or "", is_error=is_error)
        span.end()

    def cancel(self) -> None:
        """Ends the spans that run: nobody waits for the results any more. Idempotent."""
        while self._open:
            _, span = self._open.popitem()
            span.set({"turnwire.cancelled": True})
            span.end()


def _start(tracer: Tracer, call: ToolUse, kind: str) -> Span:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.call_id or None,
        "gen_ai.tool.type": kind,
        "gen_ai.tool.call.arguments": shortened(call.input_json or "{}") if tracer.records_content else None,
    }
    return tracer.start(f"execute_tool {call.name}", attributes)


def _note_result(span: Span, tracer: Tracer, output: str, *, is_error: bool) -> None:
    if tracer.records_content:
        span.set({"gen_ai.tool.call.result": shortened(output)})
    if is_error:
        span.fail(TOOL_ERROR)
