"""Long conversations in small windows: what holds from one compaction to the next, whatever is said."""

import random

import msgspec
import pytest

from tests.support.fakes.context import KeepingStore, ScriptedProvider, says
from tests.support.fakes.core import FakeProviders, make_environment
from tests.support.fakes.domain_values import make_answer, make_message, make_part, make_session, make_turn
from turnwire.core.context.next_request import StepRequests
from turnwire.core.settings import CompactionSettings
from turnwire.domain.conversation.messages import (
    FinishReason,
    Message,
    MessageStatus,
    Reasoning,
    Text,
    ToolStatus,
    ToolUse,
)


class Talk:
    """A session whose turns call tools, fail, and are interrupted by appended messages; drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.store = KeepingStore(conversation=(), sessions_by_id={"ses_1": make_session()})
        summaries = [says("sum " + "so far " * self.draw.randrange(100)) for _ in range(100)]
        window = self.draw.choice((2000, 5000, 9000))
        compaction = CompactionSettings(threshold=self.draw.choice((0.3, 0.5, 0.8)), keep=0.2)
        providers = FakeProviders(ScriptedProvider(*summaries), window)  # type: ignore[arg-type]
        self.environment = make_environment(self.store, providers, settings={"compaction": compaction})

    def add(self, message: Message) -> None:
        """Puts a message at the end."""
        self.store.add(message)

    def step(self, name: str, turn_id: str) -> Message:
        """Draws how a step ended: failed without a word, or with a call, sometimes behind sealed reasoning."""
        if self.draw.random() < 0.15:
            failed = make_answer(name, turn_id=turn_id)
            return msgspec.structs.replace(failed, parts=(), status=MessageStatus.FAILED)
        output = "o " * self.draw.choice((1, 100, 700))
        call = ToolUse(name="read", call_id=name, input_json="{}", status=ToolStatus.SUCCESS, output=output)
        if self.draw.random() < 0.2:
            parts = (make_part(0, Reasoning("hm"), provider_state="{}"), make_part(1, call))
            return make_answer(name, *parts, turn_id=turn_id, finish_reason=FinishReason.TOOL_USE)
        return make_answer(name, call, turn_id=turn_id, finish_reason=FinishReason.TOOL_USE)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(40))
async def test_what_was_summarised_stays_so(seed: int) -> None:
    """Each summary makes the request shorter; no message comes back; the question is there; what is kept stays."""
    talk = Talk(seed)
    left_out = set[str]()
    for number in range(20):
        question, turn_id = f"u{number}", f"t{number}"
        talk.add(make_message(question, Text("q " * talk.draw.choice((1, 50, 400, 900))), turn_id=turn_id))
        requests = StepRequests(talk.environment, make_turn(turn_id, user_message_id=question))
        for at in range(talk.draw.randrange(8)):
            step = await requests.next()
            sent = {message.message_id for message in step.request.messages}
            assert question in sent
            assert not left_out & sent
            left_out |= {m.message_id for m in talk.store.conversation if m.parts} - sent
            summaries = talk.store.summaries()
            left_out -= {summary.message_id for summary in summaries}
            if requests.is_compacted:
                told = summaries[-1].compaction
                assert told.tokens_after < told.tokens_before
            again = await requests.next()
            assert (again.request.messages, requests.is_compacted) == (step.request.messages, False)
            talk.add(talk.step(f"a{number}.{at}", turn_id))
            if not talk.store.conversation[-1].parts:
                break
            if talk.draw.random() < 0.1:
                talk.add(make_message(f"x{number}.{at}", "appended " * talk.draw.choice((1, 300))))
