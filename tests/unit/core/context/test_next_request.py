"""The requests of a turn's steps: what they hold, and what follows when one is too long."""

import dataclasses

import msgspec
import pytest

from tests.support.fakes.context import ScriptedProvider, says
from tests.support.fakes.context_world import USAGE, WINDOW, WORDS, World, words_in
from tests.support.fakes.core import FakeProviders
from tests.support.fakes.domain_values import make_message, make_turn
from tests.support.fakes.loop import begun
from tests.support.fakes.turns import LoneRun
from turnwire.core.context.next_request import KEPT_SETTINGS_BYTES, StepRequests
from turnwire.core.settings import CompactionSettings
from turnwire.domain.conversation.messages import File, FinishReason, MessageType, ModelRef
from turnwire.domain.conversation.turns import ToolDefinition
from turnwire.domain.errors import ProviderContextFull, ProviderUnavailable, UnknownModel
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.ports.commit import PutTurn


async def test_a_request_that_fits_is_not_compacted() -> None:
    """No model is asked for a summary."""
    world = World(window=100_000)
    step = await world.requests.next()
    assert [message.message_id for message in step.request.messages] == ["u1", "a1", "u2", "a2", "msg_user"]
    assert (step.sent.message_count, step.sent.break_reason, world.requests.is_compacted) == (5, "", False)
    assert step.sent.estimated_tokens > 4 * 400
    assert (world.provider.requests, world.store.commits) == ([], [])


async def test_what_was_not_compacted_may_be() -> None:
    """Also before a first request was made, as for a step that goes on after a restart; after that it is."""
    world = World(says("what was"), window=100_000)
    await world.requests.again()
    assert not world.requests.is_compacted
    assert await world.requests.shorter() is not None
    assert world.requests.is_compacted
    await world.requests.again()
    assert world.requests.is_compacted
    assert await world.requests.shorter() is None


async def test_summaries_that_do_not_help_are_not_tried_for_ever() -> None:
    """Two of a turn fail; then its requests go out as they are."""
    world = World(*((ProviderUnavailable("down"),) for _ in range(9)))
    for _ in range(4):
        await world.requests.next()
        assert not world.requests.is_compacted
    assert len(world.provider.requests) == 2
    assert await world.requests.shorter() is None
    assert len(world.provider.requests) == 2


async def test_large_settings_are_read_again_for_each_request() -> None:
    """A turn keeps neither its tools nor its system prompt while it waits or is answered, and its end leaves both."""
    tool = ToolDefinition("read", "d" * KEPT_SETTINGS_BYTES, "{}")
    turn = make_turn(tools=(tool,), system="s" * KEPT_SETTINGS_BYTES)
    world = World(says("fine"), window=None, turn=turn)
    world.store.unfinished = (turn,)
    run = LoneRun(world.environment, turn)
    assert run.turn == world.requests._turn == turn.header()
    for _ in range(2):
        made = (await world.requests.again()).request
        assert (made.system, made.tools) == (turn.system, turn.tools)
    assert (await world.requests.toolbox()).definitions == turn.tools
    work = await run.run(FairSemaphore(1))
    [end] = [change for change in work.changes if isinstance(change, PutTurn)]
    assert (end.turn.finish_reason, end.keeps_settings) == (FinishReason.STOP, True)
    assert world.provider.requests[0].system == turn.system


async def test_large_settings_have_a_place_before_they_are_read() -> None:
    """With their conversation; other turns wait for it."""
    turn = make_turn(system="s" * 2**20)
    world = World(window=None, turn=turn)
    world.store.unfinished = (turn,)
    limit = world.environment.settings.limits.max_prompts_bytes
    await world.environment.prompts.acquire("", limit - 2**20)
    asking = await begun(world.requests.next())
    assert not asking.done()
    world.environment.prompts.release("", 2**20)
    assert (await asking).request.system == turn.system


async def test_an_unknown_window_is_never_too_small() -> None:
    """Only the provider knows then."""
    assert len((await World(window=None).requests.next()).request.messages) == 5


async def test_files_are_loaded_and_those_to_summarise_too() -> None:
    """Text goes into the summary in short; the model gets the bytes of what is sent, and no others are read."""
    notes = File(sha256="ab", size_bytes=10, mime="text/plain", filename="notes.txt")
    kept = File(sha256="cd", size_bytes=10, mime="text/plain", filename="kept.txt")
    world = World(
        says("what was"),
        says("fine"),
        history=[make_message("u1", WORDS * 4, notes, turn_id="t1"), make_message("msg_user", kept, turn_id="trn_1")],
    )
    world.store.contents = {"ab": b"remember me", "cd": b"and me"}
    await world.run()
    summary, asked = world.provider.requests
    assert "remember me" in words_in(summary.messages[0])
    assert asked.files == {"cd": b"and me"}


async def test_a_refusal_for_length_is_answered_with_a_summary() -> None:
    """The step is made once more with less, and records that; the answer is whole."""
    world = World((ProviderContextFull("full"),), says("what was", USAGE), says("fine"), window=100_000)
    ended = await world.run()
    assert (ended.turn.finish_reason, ended.turn.steps, ended.turn.usage) == (FinishReason.STOP, 1, USAGE)
    assert [len(request.messages) for request in world.provider.requests] == [5, 1, 2]
    sent = [message.sent_context for message in world.store.conversation if message.type is MessageType.ASSISTANT][-1]
    assert sent.message_count == 2


async def test_a_refusal_tells_of_a_window_that_nobody_knew() -> None:
    """It is taken as long as the request, which was too long; the summary is asked for in pieces that fit that."""
    world = World((ProviderContextFull("full"),), *(says(f"part {n}") for n in range(20)), window=None)
    assert (await world.run()).turn.finish_reason is FinishReason.STOP
    refused, *asked, last = [sum(len(words_in(m)) for m in request.messages) for request in world.provider.requests]
    assert len(asked) > 1
    assert max(*asked, last) < refused


@pytest.mark.parametrize("compaction", [True, False])
async def test_a_second_refusal_ends_the_turn(compaction: bool) -> None:
    """So does the first where compaction is off."""
    full = (ProviderContextFull("full"),)
    world = World(full, says("what was"), full, window=100_000, compaction=compaction)
    assert (await world.run()).turn.finish_reason is FinishReason.CONTEXT_FULL
    assert len(world.provider.requests) == (3 if compaction else 1)


async def test_windows_are_asked_for_when_the_provider_is_there() -> None:
    """The catalog is read with it, beside the event loop; before that the question would hold up all."""

    class Providers(FakeProviders):
        def __init__(self, provider: ScriptedProvider) -> None:
            super().__init__(provider, WINDOW)
            self.got = set[str]()

        async def get(self, provider_id: str) -> ScriptedProvider:
            self.got.add(provider_id)
            return await super().get(provider_id)

        def context_window_tokens(self, model: ModelRef) -> int | None:
            assert model.provider_id in self.got
            return super().context_window_tokens(model)

    world = World(says("what was"))
    settings = CompactionSettings(threshold=0.5, keep=0.2, model=ModelRef("another", "m"))
    environment = dataclasses.replace(
        world.environment,
        providers=Providers(world.provider),
        settings=msgspec.structs.replace(world.environment.settings, compaction=settings),
    )
    requests = StepRequests(environment, world.turn)
    await requests.next()
    assert requests.is_compacted


async def test_a_turn_whose_model_is_gone_says_so() -> None:
    """As after a restart with another configuration."""

    class Providers(FakeProviders):
        def check(self, model: ModelRef) -> None:
            raise UnknownModel.of("model.provider.id", "there is no such provider", "PROVIDER_UNKNOWN")

    world = World()
    environment = dataclasses.replace(world.environment, providers=Providers())
    ended = (await LoneRun(environment, world.turn).run(FairSemaphore(1))).events[-1].kind
    assert ended.turn.failure.reason != "INTERNAL"
    assert "no such provider" in ended.turn.failure.message
