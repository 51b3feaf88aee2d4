"""The span of a turn: `invoke_agent`."""

from turnwire.core.work import Work
from turnwire.domain.conversation.messages import FinishReason
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.money import Usage
from turnwire.ports.commit import PutTurn
from turnwire.ports.telemetry.tracing import Attributes, Span, Tracer, current_span


def turn_span(tracer: Tracer, turn: Turn) -> Span:
    """Starts the span of a turn that runs now.

    It belongs to the call that sent the message, also when the turn waited in the queue, when the call has ended, and
    after a restart: the turn is stored with the place of the call in its trace.
    """
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": turn.agent or None,
        "gen_ai.conversation.id": turn.session_id,
        "gen_ai.request.model": turn.model.model_id,
        "turnwire.turn.id": turn.turn_id,
        "turnwire.tenant": turn.tenant,
        "turnwire.provider": turn.model.provider_id,
        "turnwire.turn.resumes": turn.resumes or None,
    }
    return tracer.start(f"invoke_agent {turn.agent}".strip(), attributes, parent=turn.traceparent)


def note_accepted(turn: Turn) -> None:
    """Adds to the span of the call that sent a message what the message became."""
    current_span().set({"gen_ai.conversation.id": turn.session_id, "turnwire.turn.id": turn.turn_id})


def note_turn_end(span: Span, work: Work) -> None:
    """Adds the result of a turn to its span, from the work that ends the turn."""
    turn = next((change.turn for change in work.changes if isinstance(change, PutTurn)), None)
    if turn is None or not span.is_recording:
        return
    reason = turn.finish_reason
    span.set(
        {
            "gen_ai.response.finish_reasons": [reason] if reason is not None else None,
            "turnwire.turn.steps": turn.steps,
            **usage_attributes(turn.usage),
        }
    )
    if turn.failure is not None or reason is FinishReason.ERROR:
        span.fail(turn.failure.reason if turn.failure is not None else "INTERNAL")


def usage_attributes(usage: Usage | None) -> Attributes:
    """Returns the tokens; those of the prompt include what a cache held, and those of the answer its reasoning."""
    if usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.prompt_total,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_write.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.output_tokens": usage.generated_total,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
