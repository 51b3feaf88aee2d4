"""The spans of tool calls."""

from tests.support.fakes.traces import RecordedTracer
from turnwire.config.sections import TracingConfig
from turnwire.core.spans.tools import TOOL_ERROR, ClientToolSpans, note_outcome, server_tool_span
from turnwire.domain.conversation.messages import ToolStatus, ToolUse
from turnwire.ports.telemetry.tracing import NO_TRACER
from turnwire.ports.tools import ToolOutcome

CALL = ToolUse(name="look", call_id="c1", input_json='{"at":"the secret plan"}')


def test_a_tool_of_the_server_has_its_result_only_when_switched_on() -> None:
    """An outcome that is an error fails the span."""
    for content in (False, True):
        tracer = RecordedTracer(TracingConfig(content=content))
        with server_tool_span(tracer, CALL) as span:
            note_outcome(span, tracer, ToolOutcome(output="it says the secret plan", is_error=True))
        attributes = dict(tracer.attributes())
        shown = {attributes.pop(name, None) for name in ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result")}
        assert shown == ({CALL.input_json, "it says the secret plan"} if content else {None})
        assert attributes == {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "look",
            "gen_ai.tool.call.id": "c1",
            "gen_ai.tool.type": "extension",
            "error.type": TOOL_ERROR,
        }


def test_a_tool_of_the_client_has_one_span_until_its_result() -> None:
    """Those without one are cancelled with their turn."""
    tracer = RecordedTracer()
    spans = ClientToolSpans(tracer)
    for _ in range(2):
        spans.begin(0, CALL)
    spans.begin(1, CALL)
    assert (spans.waiting(), tracer.spans) == ((0, 1), ())
    spans.finish(0, ToolUse(name="look", status=ToolStatus.ERROR, error="no"))
    for _ in range(2):
        spans.cancel()
    found = [(dict(span.attributes or {}).get("error.type"), span.name) for span in tracer.spans]
    assert found == [(TOOL_ERROR, "execute_tool look"), (None, "execute_tool look")]
    assert dict(tracer.spans[1].attributes or {})["turnwire.cancelled"] is True
    assert spans.waiting() == ()


def test_without_tracing_calls_have_no_spans() -> None:
    """And the same calls do no harm."""
    spans = ClientToolSpans(NO_TRACER)
    spans.begin(0, CALL)
    spans.finish(0, CALL)
    spans.cancel()
