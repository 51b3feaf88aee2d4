"""Memory for what waits."""

import asyncio
import dataclasses
import gc
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest

from tests.support.fakes.core import (
    FakeProvider,
    FakeProviders,
    FakeServerTools,
    FakeStore,
    make_environment,
    server_tool,
)
from tests.support.fakes.domain_values import make_answer, make_message, make_part, make_session, make_turn
from tests.support.fakes.loop import begun, elapse, settled
from tests.support.fakes.turns import LoneRun, make_calls
from turnwire.core import computing, memory
from turnwire.core.context.draft import RequestDraft
from turnwire.core.context.next_request import StepRequests
from turnwire.core.ending import Ending
from turnwire.core.environment import Environment
from turnwire.core.memory import (
    CALL_BYTES,
    MAX_READ_BYTES,
    UNCOUNTED_ANSWER_BYTES,
    UNCOUNTED_PROMPT_BYTES,
    PromptPlace,
    ReadBudget,
    WaitingCalls,
)
from turnwire.core.settings import PermissionRule, Retries
from turnwire.core.tools.calls import ToolCalls
from turnwire.core.tools.permission_requests import ask_permissions
from turnwire.core.tools.results import CallResult
from turnwire.domain.conversation.messages import Compaction, FinishReason, Message, MessageType, ToolStatus, ToolUse
from turnwire.domain.conversation.permissions import PermissionAction
from turnwire.domain.errors import ConversationTooLarge, MemoryShort, ProviderUnavailable, StorageBusy, TooManyTurns
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.domain.limits import Limits
from turnwire.domain.text import WIDEST_BYTES
from turnwire.ports.provider import PreparedRequest, ProviderRequest, StepFinished, StreamItem, TextDelta
from turnwire.ports.tools import ToolOutcome


async def _read(room: ReadBudget, store: FakeStore, read: list[str], name: str, go: asyncio.Event) -> None:
    async with room.for_question(store, "default", "ses_1", f"msg_{name}"):
        read.append(name)
        await go.wait()


async def test_questions_that_are_large_together_are_read_one_after_the_other() -> None:
    """Small ones need not wait, and one that is larger than the room is read alone."""
    half = MAX_READ_BYTES // WIDEST_BYTES // 2  # nobody knows beforehand how wide their characters are
    sizes = {"a": half, "b": 1000, "c": half, "d": 2 * half + 1}
    store = FakeStore(conversation=tuple(make_message(f"msg_{name}", "x" * size) for name, size in sizes.items()))
    room, read, go = ReadBudget(), list[str](), {name: asyncio.Event() for name in sizes}
    reading = []
    for name in sizes:
        reading.append(asyncio.create_task(_read(room, store, read, name, go[name])))
        await settled()
    assert read == ["a", "b"]
    go["a"].set()
    await settled()
    assert read == ["a", "b", "c"]
    for name in ("b", "c"):
        go[name].set()
        await settled()
    assert read == ["a", "b", "c", "d"]
    go["d"].set()
    await asyncio.gather(*reading)
    assert room.in_use == 0


async def test_a_request_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused with the limit, and what it was to have is free."""
    monkeypatch.setattr(memory, "PATIENCE_SECONDS", 0.0)
    room = ReadBudget()
    await room.acquire("other", MAX_READ_BYTES)
    with pytest.raises(TooManyTurns) as refused:
        await room.acquire_soon("default", 1)
    assert refused.value.metadata["limit"] == "MAX_READ_BYTES"
    assert refused.value.metadata["limitValue"] == str(MAX_READ_BYTES)
    room.release("other", MAX_READ_BYTES)
    await room.acquire_soon("default", MAX_READ_BYTES)
    assert room.in_use == MAX_READ_BYTES


async def test_what_reads_nothing_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as results of no call, and a message that is not there, while others wait for room."""
    monkeypatch.setattr(memory, "PATIENCE_SECONDS", 0.0)
    room, is_read = ReadBudget(), list[str]()
    await room.acquire("other", MAX_READ_BYTES)
    waiting = await begun(room.acquire("other", 1))
    go = asyncio.Event()
    go.set()
    await _read(room, FakeStore(), is_read, "gone", go)
    assert is_read == ["gone"]
    room.release("other", MAX_READ_BYTES)
    await waiting
    assert room.in_use == 1


READ = ToolUse(name="read", call_id="c1", input_json="{}")
LARGE = 2 * UNCOUNTED_ANSWER_BYTES


def _environment(max_bytes: int, store: FakeStore | None = None, tools: FakeServerTools | None = None) -> Environment:
    rules = (PermissionRule("*", PermissionAction.ASK), PermissionRule("read", PermissionAction.ALLOW))
    settings = {"permissions": rules, "limits": Limits(max_memory_bytes=8 * max_bytes)}
    return make_environment(store, settings=settings, tools=tools)


def _waiting(environment: Environment, *calls: ToolUse) -> ToolCalls:
    answer = make_answer("msg_1", *calls)
    assert environment.waiting_calls.hold("default", "trn_1", answer)
    return make_calls(environment, make_turn(), answer, frozenset({"read"}))


def test_a_tenant_has_half_of_the_room() -> None:
    """Small answers are not counted, and what has ended makes room."""
    waiting = WaitingCalls(4 * LARGE + 4096)
    large, small = make_answer("msg_1", "x" * LARGE), make_answer("msg_2", "x")
    assert [waiting.hold("one", f"trn_{n}", large) for n in range(3)] == [True, True, False]
    assert [waiting.hold("two", f"trn_{n}", large) for n in range(3, 6)] == [True, True, False]
    assert not waiting.hold("three", "trn_6", large)
    assert waiting.hold("three", "trn_7", small)
    assert waiting.bytes < 4 * LARGE + 4096
    waiting.forget("trn_0")
    assert waiting.hold("three", "trn_6", large)
    for number in range(8):
        waiting.forget(f"trn_{number}")
    assert waiting.bytes == 0


def test_an_answer_counts_in_place_of_the_one_before() -> None:
    """A turn waits for the calls of one step at a time. Of a turn that has ended nothing counts."""
    waiting = WaitingCalls(2 * LARGE + 4096)
    large = make_answer("msg_1", "x" * LARGE)
    assert [waiting.hold("one", "trn_1", large) for _ in range(3)] == [True] * 3
    waiting.forget("trn_1")
    assert waiting.grow("trn_1", 10 * LARGE)
    assert waiting.bytes == 0


def test_what_an_answer_has_for_its_provider_counts_too() -> None:
    """It stays in memory with the rest."""
    waiting = WaitingCalls(2 * LARGE)
    sealed = make_answer("msg_1", make_part(0, READ, provider_state="s" * LARGE))
    assert not waiting.hold("one", "trn_1", sealed)


@pytest.mark.slow
async def test_permission_requests_of_all_tenants_together_have_a_bound() -> None:
    """A thousand tenants with a hundred calls each: the first are asked, the models of the others read why not."""
    most = 4 * 2**20
    environment = _environment(most)
    calls = [ToolUse(name="look", call_id=f"c{n}", input_json="{}") for n in range(100)]
    asked = 0
    for number in range(1000):
        turn = make_turn(f"trn_{number}", tenant=f"tenant{number}")
        message, requests, beyond = await ask_permissions(environment, turn, make_answer("msg_1", *calls))
        assert len(requests) + len(beyond) == 100
        asked += len(requests)
    assert 0 < asked <= most // CALL_BYTES
    assert requests == ()
    assert [call.permission_id for _, call in message.tool_calls()] == [""] * 100
    assert {call.error for call in beyond.values()} == {
        "the call was not run: too many answers in memory wait for the results of tool calls:"
        f" limits.max_waiting_calls_bytes is {most}"
    }


async def test_a_result_without_room_is_refused() -> None:
    """It may come again; smaller ones are taken, and one that could not be stored counts no longer."""
    store = FakeStore(automatic=False)
    environment = _environment(4 * LARGE, store)
    calls = _waiting(environment, READ, READ, READ)
    with pytest.raises(MemoryShort) as caught:
        await calls.submit(0, CallResult(output="x" * 2 * LARGE))
    limit = {"limit": "limits.max_waiting_calls_bytes", "limitValue": str(4 * LARGE)}
    assert caught.value.metadata.items() >= limit.items()
    for number in range(3):
        submitting = asyncio.create_task(calls.submit(1, CallResult(output="x" * LARGE)))
        await asyncio.sleep(0)
        store.futures[number].set_exception(StorageBusy("busy"))
        with pytest.raises(StorageBusy):
            await submitting
    assert environment.waiting_calls.bytes == 0
    store.automatic = True
    await calls.submit(1, CallResult(output="x" * LARGE))
    await calls.submit(2, CallResult(output="small"))
    assert [call.status for _, call in calls.message.tool_calls()] == ["pending", "success", "success"]


async def test_of_a_tool_of_the_server_the_model_reads_that_its_result_was_left_out() -> None:
    """The tool ran, so it is not tried again; its lines are left out too."""
    tools = FakeServerTools(server_tool("read"))
    environment = _environment(2 * LARGE, tools=tools)
    answer = make_answer("msg_1", READ)
    assert environment.waiting_calls.hold("default", "trn_1", answer)
    calls = make_calls(environment, make_turn(), answer, frozenset())
    settling = asyncio.create_task(calls.settle())
    await tools.until_called(1)
    assert environment.waiting_calls.grow("trn_1", LARGE - 3 * CALL_BYTES)
    for _ in range(100):
        tools.calls[0][2]("x" * 500)
    tools.calls[0][3].set_result(ToolOutcome(output="x" * LARGE))
    await settling
    [(_, call)] = calls.message.tool_calls()
    assert (call.status, call.output) == (ToolStatus.ERROR, None)
    assert call.error.startswith("the call ran, and its result was left out: too many answers in memory wait")
    assert 0 < len(call.logs) < 20


LONG = "a" * (2 * UNCOUNTED_PROMPT_BYTES)


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

    async def ends(self, *running: "asyncio.Task[Any]") -> None:
        """Reads and answers all, until these have ended."""
        self.reads.set()
        self.answers.set()
        await asyncio.gather(*running)

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


def _environment_of_prompts(provider: FakeProvider, text: str = LONG, store: FakeStore | None = None) -> Environment:
    store = store or FakeStore(conversation=(make_message("msg_user", text),), sessions_by_id={"ses_1": make_session()})
    environment = make_environment(store, FakeProviders(provider), settings={"retries": Retries(max_retries=1)})
    environment.prompts.limit = int(1.5 * len(LONG))
    return environment


def _requests() -> list[object]:
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, ProviderRequest | PreparedRequest | RequestDraft)]


@pytest.mark.slow
async def test_a_running_turn_keeps_nothing_of_its_prompt() -> None:
    """Once the provider has read it: neither its place nor the request in any form."""
    before, provider = len(_requests()), _Reading()
    environment = _environment_of_prompts(provider)
    running = await begun(LoneRun(environment, make_turn()).run(FairSemaphore(1)))
    assert len(LONG) < environment.prompts.in_use < 1.1 * len(LONG)
    provider.reads.set()
    await settled()
    assert (environment.prompts.in_use, len(_requests()) - before) == (0, 0)
    provider.answers.set()
    await running


async def test_a_prompt_that_nobody_read_gives_up_its_place() -> None:
    """Whatever ends its call; its slot stays with who took it, and others find both."""
    room, slots = FairSemaphore(4 * UNCOUNTED_PROMPT_BYTES), FairSemaphore(1)
    place = PromptPlace(room, "acme")
    async with slots.held("acme", 1) as slot:
        with pytest.raises(ZeroDivisionError), place.beside(slot):
            await place.take(3 * UNCOUNTED_PROMPT_BYTES)
            assert (room.in_use, slots.in_use) == (3 * UNCOUNTED_PROMPT_BYTES, 1)
            await place.take(2 * UNCOUNTED_PROMPT_BYTES)
            assert (room.in_use, slots.in_use) == (2 * UNCOUNTED_PROMPT_BYTES, 1)
            raise ZeroDivisionError
        assert (room.in_use, slots.in_use) == (0, 1)
        assert room.try_acquire("acme", room.limit)
        waiting = await begun(place.take(2 * UNCOUNTED_PROMPT_BYTES))
        assert not waiting.done() and slots.in_use == 1
        room.release("acme", room.limit)
        await waiting
        assert (room.in_use, slots.in_use) == (2 * UNCOUNTED_PROMPT_BYTES, 1)
        with pytest.raises(ConversationTooLarge):
            await place.take(room.limit + 1)
        await place.take(room.limit)
        place.shrink(UNCOUNTED_PROMPT_BYTES + 1)
        assert room.in_use == UNCOUNTED_PROMPT_BYTES + 1
        place.shrink(room.limit)
        assert room.in_use == UNCOUNTED_PROMPT_BYTES + 1
        assert place.fits(room.limit) and not place.fits(room.limit + 1)
        place.shrink(UNCOUNTED_PROMPT_BYTES)
        assert room.in_use == 0
    assert slots.in_use == 0


async def test_a_turn_waits_for_its_place_and_holds_up_no_small_one() -> None:
    """It leaves its slot to others meanwhile, and is asked when the first prompt was read."""
    provider, slots = _Reading(), FairSemaphore(2)
    environment = _environment_of_prompts(provider)
    runs = [LoneRun(environment, make_turn(turn_id)) for turn_id in ("trn_1", "trn_2", "trn_3")]
    running = [asyncio.create_task(run.run(slots)) for run in runs]
    await settled()
    assert (provider.asked, slots.in_use) == (1, 1)
    small = LoneRun(_beside(environment), make_turn("trn_4"))
    running.append(asyncio.create_task(small.run(slots)))
    await settled()
    assert provider.asked == 2
    runs[1].stop(Ending(FinishReason.ABORTED))
    await provider.ends(*running)
    assert (provider.asked, environment.prompts.in_use) == (3, 0)


def _beside(environment: Environment) -> Environment:
    """Returns one with a short conversation and the same room."""
    other = _environment_of_prompts(environment.providers.provider, "short")  # type: ignore[attr-defined]
    object.__setattr__(other, "prompts", environment.prompts)
    return other


async def test_another_attempt_takes_a_place_anew() -> None:
    """Its request is made again from what is stored; between the attempts there is none."""
    environment = _environment_of_prompts(provider := _Reading())
    running = asyncio.create_task(LoneRun(environment, make_turn()).run(FairSemaphore(1)))
    provider.reads.set()
    provider.fails.set()
    await settled()
    assert (provider.asked, environment.prompts.in_use) == (1, 0)
    provider.reads.clear()
    provider.fails.clear()
    await elapse(timedelta(minutes=1))
    assert provider.asked == 2
    assert environment.prompts.in_use > len(LONG)
    await provider.ends(running)
    assert environment.prompts.in_use == 0


async def test_a_prompt_that_never_fits_ends_its_turn() -> None:
    """It names the limit, and no model is asked."""
    provider = _Reading()
    environment = _environment_of_prompts(provider, LONG * 2)
    work = await LoneRun(environment, make_turn()).run(FairSemaphore(1))
    assert provider.asked == 0
    assert "limits.max_prompts_bytes" in repr(work)


class _Counting(FakeStore):
    """Counts the conversations that it reads, which may grow when they are read."""

    reads = 0
    grown: tuple[Message, ...] = ()

    async def history(self, session_id: str) -> tuple[Message, ...]:
        self.reads += 1
        self.conversation = self.grown or self.conversation
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
    environment, tools = _environment_of_prompts(provider, store=store), _Undiscovered()
    slow = dataclasses.replace(environment, tools=tools)
    object.__setattr__(slow, "prompts", environment.prompts)
    runs = [LoneRun(slow, make_turn("trn_slow"))]
    runs += [LoneRun(environment, make_turn(f"trn_{n}")) for n in range(3)]
    running = [asyncio.create_task(run.run(FairSemaphore(4))) for run in runs]
    await settled()
    assert (provider.asked, store.reads) == (1, 1)
    tools.discovered.set()
    await provider.ends(*running)
    assert (provider.asked, store.reads, environment.prompts.in_use) == (4, 4, 0)


def _counting(text: str) -> _Counting:
    return _Counting(conversation=(make_message("msg_user", text),), sessions_by_id={"ses_1": make_session()})


@pytest.mark.parametrize("is_read", [False, True], ids=["while it waits", "while it is read"])
async def test_a_prompt_that_has_grown_is_measured_again(is_read: bool) -> None:
    """One that is larger than all prompts may be is refused; its place does not grow unseen."""
    provider, store = _Reading(), _counting(LONG)
    environment = _environment_of_prompts(provider, store=store)
    held = environment.prompts
    if not is_read:
        assert held.try_acquire("other", len(LONG))
    grown = (*store.conversation, make_message("msg_more", LONG))
    if is_read:
        store.grown = grown
    running = await begun(LoneRun(environment, make_turn()).run(FairSemaphore(1)))
    if not is_read:
        store.conversation = grown
        held.release("other", len(LONG))
    work = await running
    assert (provider.asked, held.in_use) == (0, 0)
    assert "limits.max_prompts_bytes" in repr(work)


@pytest.mark.slow
async def test_a_prompt_that_has_grown_waits_for_a_larger_place() -> None:
    """It leaves the one that it has, and keeps nothing meanwhile."""
    before, provider, store = len(_requests()), _Reading(), _counting(LONG)
    environment = _environment_of_prompts(provider, store=store)
    held = environment.prompts
    held.limit = int(3.5 * len(LONG))
    assert held.try_acquire("other", 2 * len(LONG))
    store.grown = (*store.conversation, make_message("msg_more", LONG))
    running = await begun(LoneRun(environment, make_turn()).run(FairSemaphore(1)))
    assert (provider.asked, held.in_use, len(_requests()) - before) == (0, 2 * len(LONG), 0)
    held.release("other", 2 * len(LONG))
    await provider.ends(running)
    assert (provider.asked, held.in_use) == (1, 0)


async def test_a_conversation_over_the_limit_is_read_alone_when_its_prompt_is_short() -> None:
    """A summary may replace most of it: while it is read it has all the room, and then what its prompt needs."""
    compaction = Compaction(through_message_id="msg_old", message_count=1, tokens_before=1, tokens_after=1)
    summary = make_message("msg_summary", "what was", type=MessageType.SYSTEM, compaction=compaction)
    store = _counting("hello")
    store.conversation = (make_message("msg_old", LONG * 2), summary, *store.conversation)
    provider = _Reading()
    environment = _environment_of_prompts(provider, store=store)
    assert environment.prompts.try_acquire("other", 1)
    running = await begun(LoneRun(environment, make_turn()).run(FairSemaphore(1)))
    assert (provider.asked, store.reads) == (0, 0)
    environment.prompts.release("other", 1)
    await settled()
    assert (provider.asked, store.reads, environment.prompts.in_use) == (1, 1, 0)
    await provider.ends(running)


async def test_long_texts_count_in_what_is_kept_of_a_session() -> None:
    """Also when no provider was asked, so that nothing was written of them: else sessions are kept without a bound."""
    environment = _environment_of_prompts(_Reading())
    await StepRequests(environment, make_turn()).next()
    assert len(LONG) < environment.conversations.size_bytes < 1.1 * len(LONG)
