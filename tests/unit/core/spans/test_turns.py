"""The span of a turn."""

import msgspec
import pytest
from opentelemetry.trace import StatusCode, format_span_id

from tests.support.fakes.domain_values import NOW
from tests.support.fakes.traces import RecordedTracer
from turnwire.core.ending.closing import Ending, end_turn
from turnwire.core.spans.turns import note_accepted, note_turn_end, turn_span
from turnwire.core.work import Work
from turnwire.domain.conversation.messages import Failure, FinishReason, ModelRef
from turnwire.domain.conversation.turns import Turn, TurnStatus

TURN = Turn(
    turn_id="trn_1",
    session_id="ses_1",
    tenant="acme",
    user_message_id="msg_1",
    status=TurnStatus.RUNNING,
    created_at=NOW,
    model=ModelRef("p", "m"),
)


def test_it_belongs_to_the_call_that_sent_the_message() -> None:
    """Whatever is current when it starts; the call's span names the turn."""
    tracer = RecordedTracer()
    with tracer.start("call") as call:
        note_accepted(TURN)
    turn = msgspec.structs.replace(TURN, traceparent=call.traceparent, agent="coder")
    with tracer.start("other"), turn_span(tracer, turn):
        pass
    sent, ran, _ = tracer.spans
    assert dict(sent.attributes or {}) == {"gen_ai.conversation.id": "ses_1", "turnwire.turn.id": "trn_1"}
    assert ran.parent is not None and format_span_id(ran.parent.span_id) == call.span_id
    assert (ran.name, dict(ran.attributes or {})) == (
        "invoke_agent coder",
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "coder",
            "gen_ai.conversation.id": "ses_1",
            "gen_ai.request.model": "m",
            "turnwire.turn.id": "trn_1",
            "turnwire.tenant": "acme",
            "turnwire.provider": "p",
        },
    )


def test_a_turn_of_an_untraced_call_begins_a_trace() -> None:
    """Such as one that waited while tracing was switched on."""
    tracer = RecordedTracer()
    with tracer.start("other"), turn_span(tracer, TURN):
        pass
    assert tracer.spans[0].parent is None


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        (Ending(FinishReason.STOP), None),
        (Ending(FinishReason.ABORTED), None),
        (Ending(FinishReason.ERROR, Failure("PROVIDER_TIMEOUT", "the secret plan")), "PROVIDER_TIMEOUT"),
        (Ending(FinishReason.ERROR), "INTERNAL"),
    ],
)
def test_the_end_is_noted(ending: Ending, error: str | None) -> None:
    """A failure by its reason; an abort is none."""
    tracer = RecordedTracer()
    with turn_span(tracer, TURN) as span:
        note_turn_end(span, end_turn(TURN, (), ending, NOW))
    attributes = tracer.attributes()
    assert attributes["gen_ai.response.finish_reasons"] == (ending.finish_reason,)
    assert (attributes.get("error.type"), attributes["turnwire.turn.steps"]) == (error, 0)
    assert (tracer.spans[0].status.status_code is StatusCode.ERROR) == (error is not None)
    assert "the secret plan" not in tracer.spans[0].to_json()


def test_work_that_ends_no_turn_adds_nothing() -> None:
    """A turn that was suspended ends in another process."""
    tracer = RecordedTracer()
    with turn_span(tracer, TURN) as span:
        note_turn_end(span, Work())
    assert "gen_ai.response.finish_reasons" not in tracer.attributes()
