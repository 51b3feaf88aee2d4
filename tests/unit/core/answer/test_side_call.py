"""A model that is asked beside a turn: what it reads."""

from tests.support.fakes.core import FakeProvider, FakeProviders, make_environment
from tests.support.fakes.domain_values import make_turn
from turnwire.core.answer.side_call import SideCall
from turnwire.domain.conversation.messages import FinishReason, MessageType, ModelRef, Text
from turnwire.domain.limits import Limits
from turnwire.ports.provider import StepFinished, TextDelta
from turnwire.ports.telemetry.tracing import NO_TRACER


async def test_a_model_reads_one_message_with_all_words() -> None:
    """In one part, the first; what it writes is returned."""
    provider = FakeProvider((TextDelta(0, "A title"), StepFinished(FinishReason.STOP, "stop")))
    environment = make_environment(providers=FakeProviders(provider))
    call = SideCall(environment, make_turn(), ModelRef("offline", "echo"), limits=Limits(), tracer=NO_TRACER)
    assert (await call.ask("Give a title", "question and answer", 50)).reason is FinishReason.STOP
    assert (call.texts(), call.has_used) == (["A title"], True)
    [request] = provider.requests
    [message] = request.messages
    [part] = message.parts
    assert (request.model_id, request.system, message.type) == ("echo", "Give a title", MessageType.USER)
    assert (part.index, part.content) == (0, Text("question and answer"))
