"""One call of a model for a title."""

from tests.support.fakes.core import FakeProvider, FakeProviders, make_environment
from tests.support.fakes.domain_values import make_turn
from turnwire.core.use_cases.titling.calls import TitleCall
from turnwire.core.use_cases.titling.words import INSTRUCTION
from turnwire.domain.conversation.messages import FinishReason, MessageType, ModelRef, Text
from turnwire.ports.provider import StepFinished, TextDelta


async def test_a_model_reads_one_message_with_all_words() -> None:
    """In one part, the first; what it writes is returned."""
    provider = FakeProvider((TextDelta(0, "A title"), StepFinished(FinishReason.STOP, "stop")))
    call = TitleCall(make_environment(providers=FakeProviders(provider)), make_turn(), ModelRef("offline", "echo"))
    assert await call.ask("question and answer") == "A title"
    [request] = provider.requests
    [message] = request.messages
    [part] = message.parts
    assert (request.model_id, request.system, message.type) == ("echo", INSTRUCTION, MessageType.USER)
    assert (part.index, part.content) == (0, Text("question and answer"))
