"""Prompts have a place until their provider has read them, and nothing of them is kept while the answer streams."""

import asyncio
import dataclasses
import gc
from collections.abc import AsyncGenerator
from datetime import timedelta

import msgspec
import pytest

from tests.support.fakes.core import FakeProvider, FakeProviders, FakeServerTools, FakeStore, make_environment
from tests.support.fakes.domain_values import make_message, make_session, make_turn
from tests.support.fakes.loop import elapse, settled
from turnwire.core import computing
from turnwire.core.answer.prompts import ALWAYS_BYTES, PromptPlace
from turnwire.core.context.draft import Draft
from turnwire.core.context.next_request import StepRequests
from turnwire.core.ending.closing import Ending
from turnwire.core.environment import Environment
from turnwire.core.settings import Retries
from turnwire.core.turns.run import TurnRun
from turnwire.domain.conversation.messages import Compaction, FinishReason, Message, MessageType
from turnwire.domain.errors import ConversationTooLarge, ProviderUnavailable
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.ports.provider import PreparedRequest, ProviderRequest, StepFinished, StreamItem, TextDelta

LONG = "a" * (2 * ALWAYS_BYTES)


@pytest.fixture(autouse=True)
def _without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets all be computed on the loop, which a test can wait for."""
    monkeypatch.setattr(computing, "MANY_BYTES", 2**30)


class _Reading(FakeProvider):
    """Reads a prompt and answers each time that it is told to."""

    def __init__(self) -> None:
        super().__init__([])
        self.asked = 0
        self.reads, self.answers, self.fails = (asyncio.Event() for _ in range(3))

    def stream(self, prepared: PreparedRequest) -> AsyncGenerator[StreamItem]:
        self.asked += 1
        return self._stream(prepared.was_read)

    async def _stream(self, was_read: object) -> AsyncGenerator[StreamItem]:
        await self.reads.wait()
        was_read()  # type: ignore[operator]
        yield TextDelta(0, "word") if not self.fails.is_set() else _raise(ProviderUnavailable("down"))
        await self.answers.wait()
        yield StepFinished(FinishReason.STOP, "stop")


def _raise(error: Exception) -> StreamItem:
    raise error


def _environment(provider: FakeProvider, text: str = LONG, store: FakeStore | None = None) -> Environment:
    store = store or FakeStore(conversation=(make_message("msg_user", text),), sessions_by_id={"ses_1": make_session()})
    environment = make_environment(store, FakeProviders(provider), settings={"retries": Retries(max_retries=1)})
    environment.prompts.limit = int(1.5 * len(LONG))
    return environment


def _requests() -> list[object]:
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, ProviderRequest | PreparedRequest | Draft)]


async def test_a_running_turn_keeps_nothing_of_its_prompt() -> None:
    """Once the provider has read it: neither its place nor the request in any form."""
    before, provider = len(_requests()), _Reading()
    environment = _environment(provider)
    running = asyncio.create_task(TurnRun(environment, make_turn()).run(FairSemaphore(1)))
    await settled()
    assert len(LONG) < environment.prompts.in_use < 1.1 * len(LONG)
    provider.reads.set()
    await settled()
    assert (environment.prompts.in_use, len(_requests()) - before) == (0, 0)
    provider.answers.set()
    await running


async def test_a_prompt_that_nobody_read_gives_up_its_place() -> None:
    """Whatever ends its call; its slot stays with who took it, and others find both."""
    room, slots = FairSemaphore(4 * ALWAYS_BYTES), FairSemaphore(1)
    place = PromptPlace(room, "acme")
    async with slots.held("acme", 1) as slot:
        with pytest.raises(ZeroDivisionError), place.beside(slot):
            await place.take(3 * ALWAYS_BYTES)
            assert (room.in_use, slots.in_use) == (3 * ALWAYS_BYTES, 1)
            await place.take(2 * ALWAYS_BYTES)
            assert (room.in_use, slots.in_use) == (2 * ALWAYS_BYTES, 1)
            raise ZeroDivisionError
        assert (room.in_use, slots.in_use) == (0, 1)
        assert room.try_acquire("acme", room.limit)
        waiting = asyncio.create_task(place.take(2 * ALWAYS_BYTES))
        await settled()
        assert not waiting.done() and slots.in_use == 1
        room.release("acme", room.limit)
        await waiting
        assert (room.in_use, slots.in_use) == (2 * ALWAYS_BYTES, 1)
        with pytest.raises(ConversationTooLarge):
            await place.take(room.limit + 1)
        await place.take(room.limit)
        place.shrink(ALWAYS_BYTES + 1)
        assert room.in_use == ALWAYS_BYTES + 1
        place.shrink(room.limit)
        assert room.in_use == ALWAYS_BYTES + 1
        assert place.fits(room.limit) and not place.fits(room.limit + 1)
        place.shrink(ALWAYS_BYTES)
        assert room.in_use == 0
    assert slots.in_use == 0


async def test_a_turn_waits_for_its_place_and_holds_up_no_small_one() -> None:
    """It leaves its slot to others meanwhile, and is asked when the first prompt was read."""
    provider, slots = _Reading(), FairSemaphore(2)
    environment = _environment(provider)
    runs = [TurnRun(environment, make_turn(turn_id)) for turn_id in ("trn_1", "trn_2", "trn_3")]
    running = [asyncio.create_task(run.run(slots)) for run in runs]
    await settled()
    assert (provider.asked, slots.in_use) == (1, 1)
    small = TurnRun(_beside(environment), make_turn("trn_4"))
    running.append(asyncio.create_task(small.run(slots)))
    await settled()
    assert provider.asked == 2
    runs[1].stop(Ending(FinishReason.ABORTED))
    provider.reads.set()
    provider.answers.set()
    await asyncio.gather(*running)
    assert (provider.asked, environment.prompts.in_use) == (3, 0)


def _beside(environment: Environment) -> Environment:
    """Returns one with a short conversation and the same room."""
    other = _environment(environment.providers.provider, "short")  # type: ignore[attr-defined]
    object.__setattr__(other, "prompts", environment.prompts)
    return other


async def test_another_attempt_takes_a_place_anew() -> None:
    """Its request is made again from what is stored; between the attempts there is none."""
    provider = _Reading()
    environment = _environment(provider)
    running = asyncio.create_task(TurnRun(environment, make_turn()).run(FairSemaphore(1)))
    provider.reads.set()
    provider.fails.set()
    await settled()
    assert (provider.asked, environment.prompts.in_use) == (1, 0)
    provider.reads.clear()
    provider.fails.clear()
    await elapse(timedelta(minutes=1))
    assert provider.asked == 2
    assert environment.prompts.in_use > len(LONG)
    provider.reads.set()
    provider.answers.set()
    await running
    assert environment.prompts.in_use == 0


async def test_a_prompt_that_never_fits_ends_its_turn() -> None:
    """It names the limit, and no model is asked."""
    provider = _Reading()
    environment = _environment(provider, LONG * 2)
    work = await TurnRun(environment, make_turn()).run(FairSemaphore(1))
    assert provider.asked == 0
    assert "limits.max_prompts_bytes" in repr(work)


class _Counting(FakeStore):
    """Counts the conversations that it reads."""

    reads = 0

    async def history(self, session_id: str) -> tuple[Message, ...]:
        self.reads += 1
        return await super().history(session_id)


class _Undiscovered(FakeServerTools):
    """The tools of a server that does not answer yet."""

    def __init__(self) -> None:
        super().__init__()
        self.discovered = asyncio.Event()

    async def wait_discovered(self) -> None:
        await self.discovered.wait()


async def test_no_conversation_is_read_before_its_prompt_has_a_place() -> None:
    """Not by turns that wait for a place, and not by one that waits for the tools of the server."""
    provider, store = _Reading(), _counting(LONG)
    environment, tools = _environment(provider, store=store), _Undiscovered()
    slow = dataclasses.replace(environment, tools=tools)
    object.__setattr__(slow, "prompts", environment.prompts)
    runs = [TurnRun(slow, make_turn("trn_slow"))]
    runs += [TurnRun(environment, make_turn(f"trn_{n}")) for n in range(3)]
    running = [asyncio.create_task(run.run(FairSemaphore(4))) for run in runs]
    await settled()
    assert (provider.asked, store.reads) == (1, 1)
    tools.discovered.set()
    provider.reads.set()
    provider.answers.set()
    await asyncio.gather(*running)
    assert (provider.asked, store.reads, environment.prompts.in_use) == (4, 4, 0)


def _counting(text: str) -> _Counting:
    return _Counting(conversation=(make_message("msg_user", text),), sessions_by_id={"ses_1": make_session()})


@pytest.mark.parametrize("is_read", [False, True], ids=["while it waits", "while it is read"])
async def test_a_prompt_that_has_grown_is_measured_again(is_read: bool) -> None:
    """One that is larger than all prompts may be is refused; its place does not grow unseen."""
    provider, store = _Reading(), _counting(LONG)
    environment = _environment(provider, store=store)
    held = environment.prompts
    if not is_read:
        assert held.try_acquire("other", len(LONG))
    grown = (*store.conversation, make_message("msg_more", LONG))

    async def history(session_id: str) -> tuple[Message, ...]:
        store.conversation = grown
        return grown

    if is_read:
        store.history = history  # type: ignore[method-assign]
    running = asyncio.create_task(TurnRun(environment, make_turn()).run(FairSemaphore(1)))
    await settled()
    if not is_read:
        store.conversation = grown
        held.release("other", len(LONG))
    work = await running
    assert (provider.asked, held.in_use) == (0, 0)
    assert "limits.max_prompts_bytes" in repr(work)


async def test_a_prompt_that_has_grown_waits_for_a_larger_place() -> None:
    """It leaves the one that it has, and keeps nothing meanwhile."""
    before, provider, store = len(_requests()), _Reading(), _counting(LONG)
    environment = _environment(provider, store=store)
    held = environment.prompts
    held.limit = int(3.5 * len(LONG))
    assert held.try_acquire("other", 2 * len(LONG))
    grown = (*store.conversation, make_message("msg_more", LONG))

    async def history(session_id: str) -> tuple[Message, ...]:
        store.conversation = grown
        return grown

    store.history = history  # type: ignore[method-assign]
    running = asyncio.create_task(TurnRun(environment, make_turn()).run(FairSemaphore(1)))
    await settled()
    assert (provider.asked, held.in_use, len(_requests()) - before) == (0, 2 * len(LONG), 0)
    held.release("other", 2 * len(LONG))
    provider.reads.set()
    provider.answers.set()
    await running
    assert (provider.asked, held.in_use) == (1, 0)


async def test_a_conversation_over_the_limit_is_read_alone_when_its_prompt_is_short() -> None:
    """A summary may replace most of it: while it is read it has all the room, and then what its prompt needs."""
    summary = make_message("msg_summary", "what was", type=MessageType.SYSTEM)
    summary = msgspec.structs.replace(
        summary, compaction=Compaction(through_message_id="msg_old", message_count=1, tokens_before=1, tokens_after=1)
    )
    store = _counting("hello")
    store.conversation = (make_message("msg_old", LONG * 2), summary, *store.conversation)
    provider = _Reading()
    environment = _environment(provider, store=store)
    assert environment.prompts.try_acquire("other", 1)
    running = asyncio.create_task(TurnRun(environment, make_turn()).run(FairSemaphore(1)))
    await settled()
    assert (provider.asked, store.reads) == (0, 0)
    environment.prompts.release("other", 1)
    await settled()
    assert (provider.asked, store.reads, environment.prompts.in_use) == (1, 1, 0)
    provider.reads.set()
    provider.answers.set()
    await running


async def test_long_texts_count_in_what_is_kept_of_a_session() -> None:
    """Also when no provider was asked, so that nothing was written of them: else sessions are kept without a bound."""
    environment = _environment(_Reading())
    await StepRequests(environment, make_turn()).next()
    assert len(LONG) < environment.conversations.size_bytes < 1.1 * len(LONG)
