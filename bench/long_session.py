"""Long conversations: what one costs until its model is asked, and what others notice of it."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench import report
from bench.child import Child, model_provider, running, turnwire
from bench.client import Client, connect
from bench.model_provider import model_name
from bench.neighbour import SETTLE_SECONDS, Felt, Neighbour, figures, neighbour
from bench.report import Figure, percentile
from opencode.event.event_pb2 import WatchEventsResponse
from opencode.message.message_pb2 import ExplainContextRequest, MessagePart, SendMessageRequest, TextPart
from opencode.model.model_pb2 import ModelName
from opencode.tool.tool_pb2 import ToolDefinition
from opencode.turn.turn_pb2 import TurnSettings
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.conversation.messages import (
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    ModelRun,
    Part,
    Text,
)
from turnwire.domain.conversation.sessions import Session
from turnwire.ports.commit import Commit, PutMessage, PutSession
from turnwire.storage.sqlite.store import SqliteStore, StorageSettings

WANTED_MS = {100: 8.0, 1_000: 8.0, 10_000: 30.0}
"""Time from SendMessage until the provider has the request, by the messages of the session."""

NEIGHBOUR_DELTA_MS, NEIGHBOUR_READ_MS = 10.0, 30.0

EXPLAINED = 100_000
RESULTS = 1_000
MANY_TURNS = 200
MANY_MESSAGES = 500
"""Messages of each session that has these turns."""

_MOMENT = re.compile(rb"@(\d+)@")

WORDS = "The pump in cellar three runs, and the float has been changed since you asked about it last week. " * 4


async def measure(folder: Path, quick: bool) -> None:
    """Prints the times of single turns, cold and warm, then what a neighbour feels of the large cases."""
    report.title(
        "long_session",
        "SendMessage until the provider has the whole request; beside it a neighbour; ceiling: the same without it",
    )
    rounds = 10 if quick else 40
    explained = EXPLAINED // 10 if quick else EXPLAINED
    many = MANY_TURNS // 4 if quick else MANY_TURNS
    lengths = {f"ses_{length}": length for length in WANTED_MS}
    lengths |= {"ses_explained": explained} | {f"ses_many_{number}": MANY_MESSAGES for number in range(many)}
    await _fill(folder / "turnwire.db", lengths)
    async with (
        model_provider(folder) as quiet,
        running(folder, "asked", ["-m", "bench.asked_provider"]) as asked,
        turnwire(folder, _toml(quiet, asked)) as server,
        connect(server.address) as client,
        neighbour(server, "quiet") as other,
    ):
        await _until_asked(client, await client.create_session())  # imports the SDK
        await asyncio.sleep(1)
        alone = await _felt(other, lambda: asyncio.sleep(3))
        for length, wanted in WANTED_MS.items():
            await _single(client, other, alone, length=length, wanted=wanted, rounds=rounds)
        await _beside(other, alone, f"ExplainContext of {explained:,}", lambda: _explain(client, "ses_explained"))
        await _beside(other, alone, f"{RESULTS:,} results of one step", lambda: _results(client, RESULTS))
        sessions = [f"ses_many_{number}" for number in range(many)]
        await _beside(other, alone, f"{many} turns at once, cold", lambda: _all_asked(client, sessions))
        await _beside(other, alone, f"{many} turns at once, again", lambda: _all_asked(client, sessions))


def _toml(quiet: Child, asked: Child) -> str:
    providers = [
        f'[providers.{name}]\nkind = "openai_chat"\nbase_url = "http://{child.address}/v1"\n'
        for name, child in (("quiet", quiet), ("local", asked))
    ]
    return "[limits]\nmax_running_turns = 1000\n" + "".join(providers)


async def _fill(path: Path, lengths: dict[str, int]) -> None:
    """Stores sessions whose users and models speak by turns."""
    store = await SqliteStore.open(StorageSettings(path=path), ProtoCodec(), lambda _: None)
    try:
        for session_id, length in lengths.items():
            at = _now()
            session = Session(session_id=session_id, created_at=at, updated_at=at)
            await store.commit(Commit(session_id=session_id, at=at, changes=(PutSession(session),)))
            for start in range(0, length, 500):
                numbers = range(start, min(start + 500, length))
                changes = tuple(PutMessage(_message(session_id, number)) for number in numbers)
                await store.commit(Commit(session_id=session_id, at=at, changes=changes))
    finally:
        await store.aclose()


def _now() -> datetime:
    return datetime.now(UTC)


def _message(session_id: str, number: int) -> Message:
    at, message_id = _now(), f"msg_{session_id}_{number}"
    is_answer = number % 2 == 1
    return Message(
        message_id=message_id,
        session_id=session_id,
        type=MessageType.ASSISTANT if is_answer else MessageType.USER,
        status=MessageStatus.COMPLETE,
        created_at=at,
        updated_at=at,
        parts=(Part(part_id=f"prt_{session_id}_{number}", index=0, content=Text(f"{number}: {WORDS}")),),
        finish_reason=FinishReason.STOP if is_answer else None,
        model_run=ModelRun(provider_id="local", model_requested=model_name(1)) if is_answer else None,
    )


async def _until_asked(client: Client, session_id: str) -> float:
    """Returns milliseconds from a message until the provider has its request, and waits for the turn's end."""
    watch = await client.watch(session_id)
    begun = time.monotonic_ns()
    await client.send(session_id, "and now?", "local/asked")
    moment, is_over = 0, False
    while not is_over:
        batch = await watch.read()
        found = _MOMENT.search(batch)
        moment = moment or (int(found[1]) if found else 0)
        is_over = any(event.HasField("turn_ended") for event in WatchEventsResponse.FromString(batch).events)
    watch.cancel()
    return (moment - begun) / 1e6


async def _single(client: Client, other: Neighbour, alone: Felt, *, length: int, wanted: float, rounds: int) -> None:
    session_id = f"ses_{length}"
    cold = await _until_asked(client, session_id)
    warm: list[float] = []

    async def often() -> None:
        for _ in range(rounds):
            warm.append(await _until_asked(client, session_id))

    felt = await _felt(other, often)
    name = f"{length:,} messages"
    report.show(
        [
            Figure(f"{name}: until the request, cold", cold, None, "ms", lower_is_better=True),
            Figure(f"{name}: until the request, p50", percentile(warm, 50), None, "ms", True, wanted=wanted),
            Figure(f"{name}: until the request, p99", percentile(warm, 99), None, "ms", lower_is_better=True),
            *_neighbour(name, felt, alone),
        ]
    )


async def _beside(other: Neighbour, alone: Felt, name: str, work: Callable[[], Awaitable[object]]) -> None:
    begun = time.perf_counter()
    felt = await _felt(other, work)
    seconds = time.perf_counter() - begun - SETTLE_SECONDS
    report.show([Figure(f"{name}: all of it", seconds * 1000, None, "ms", True), *_neighbour(name, felt, alone)])


async def _felt(other: Neighbour, work: Callable[[], Awaitable[object]]) -> Felt:
    await other.begin()
    await work()
    return await other.felt()


def _neighbour(name: str, felt: Felt, alone: Felt) -> list[Figure]:
    return figures(name, felt, alone, delta_p50=None, delta_p99=NEIGHBOUR_DELTA_MS, read_p99=NEIGHBOUR_READ_MS)


async def _all_asked(client: Client, sessions: Sequence[str]) -> None:
    await asyncio.gather(*(_until_asked(client, session_id) for session_id in sessions))


async def _results(client: Client, count: int) -> None:
    """Has a model call a tool many times in one step, and gives all results at once."""
    session_id = await client.create_session()
    watch = await client.watch(session_id)
    lines = "\n".join('/tool look {"at": "cellar three"}' for _ in range(count))
    await client.send_bytes(
        SendMessageRequest(
            session_id=session_id,
            parts=[MessagePart(text=TextPart(text=f"{lines}\n/step\ndone"))],
            tools=[ToolDefinition(name="look", description="looks")],
        ).SerializeToString()
    )
    given: list[asyncio.Task[None]] = []
    while True:
        for event in WatchEventsResponse.FromString(await watch.read()).events:
            call = event.tool_call_updated.state
            if call.status == "pending":
                given.append(asyncio.create_task(client.submit(session_id, call.id, "dry")))
            if event.HasField("turn_ended"):
                await asyncio.gather(*given)
                watch.cancel()
                return


async def _explain(client: Client, session_id: str) -> None:
    settings = TurnSettings(model=ModelName(provider_id="local", model_id="asked"))
    await client.explain(ExplainContextRequest(session_id=session_id, settings=settings).SerializeToString())
