"""Clients that do everything at the same time, drawn from a seed, until they are stopped."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import MethodOptions

from opencode.event.event_pb2 import WatchEventsRequest, WatchEventsResponse
from opencode.session.session_pb2 import ListSessionsRequest
from tests.support.clients.archives import upload
from tests.support.clients.conversation import ask, model, new_session, talk
from tests.support.clients.every_method import METHODS, REQUESTS, sample
from tests.support.clients.web import WebClient
from tests.support.commits.traffic import EXPECTED, Thing, Traffic
from tests.support.models.scripts import Say, answer, error
from tests.support.servers.provider import RecordedRequest, ScriptedReply
from tests.support.servers.running import Client


class Churn:
    """Clients of one server: each carries out the commands of the table, and what stands below."""

    def __init__(self, client: Client, web: WebClient, seed: int) -> None:
        """Takes a client of each listener, which their owner closes, and what decides the order of things."""
        self.done: Counter[str] = Counter()
        """Number of times that each thing was done; `NAME CODE` when it was refused."""
        self._client = client
        self._web = web
        self._rng = random.Random(seed)

    async def run(self, until: Callable[[], bool], workers: int) -> None:
        """Does things until told to stop, each worker one after the other and each at least once.

        Raises:
            grpc.aio.AioRpcError: a thing failed in a way that nothing explains.
        """
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work(until))

    async def clear(self) -> None:
        """Deletes all sessions, with their turns."""
        request = ListSessionsRequest(page_size=100)
        for archived in (False, True):
            request.archived = archived
            while found := (await self._client.sessions.ListSessions(request)).sessions:
                await self._traffic().delete(*(session.id for session in found))

    def _traffic(self) -> Traffic:
        return Traffic(self._client, random.Random(self._rng.random()))

    async def _work(self, until: Callable[[], bool]) -> None:
        traffic = self._traffic()
        own = (self.reads, self.broken_import, self.watch, self.lag, self.resume, self.simple, self.page, self.model)
        things: Mapping[str, Thing] = traffic.commands() | {thing.__name__: thing for thing in own}
        await traffic.run(things, until)
        self.done += traffic.done

    @contextlib.asynccontextmanager
    async def _session(self, words: str = "") -> AsyncIterator[str]:
        session_id = await new_session(self._client, title="churn")
        try:
            if words:
                await talk(self._client, words, session_id)
            yield session_id
        finally:
            await self._traffic().delete(session_id)

    async def reads(self) -> None:
        """Each method that stores nothing; what the request names is mostly not there."""
        async with self._session("some words about a plan\n/words 200") as session_id:
            belongings = sample("churn")
            belongings.session_id = session_id
            for name, makers in REQUESTS.items():
                if METHODS[name].GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS:
                    for make in makers:
                        await self._read(name, make(belongings))

    async def _read(self, name: str, request: Any) -> None:
        service, method = name.rsplit(".", 1)
        call = self._client.channel.unary_stream if METHODS[name].server_streaming else self._client.channel.unary_unary
        made = call(f"/opencode.{service}/{method}", request_serializer=type(request).SerializeToString)(request)
        try:
            await _soon(made.read() if METHODS[name].server_streaming else made)
        except grpc.aio.AioRpcError as error:
            if error.code() not in (*EXPECTED, grpc.StatusCode.INVALID_ARGUMENT):
                raise
        made.cancel()

    async def broken_import(self) -> None:
        """An archive that is none."""
        upload_id = await upload(self._client, b"no archive")
        try:
            async for _ in self._client.transfer.ImportSessions(upload_id=upload_id):
                pass
        except grpc.aio.AioRpcError as failed:
            if failed.code() is not grpc.StatusCode.INVALID_ARGUMENT:
                raise
        await self._client.uploads.DeleteUpload(upload_id=upload_id)

    async def watch(self) -> None:
        """A watch of all sessions that is dropped without a word."""
        call = self._client.events.WatchEvents()
        for _ in range(self._rng.choice((0, 1, 5))):
            await _soon(call.read())
        call.cancel()

    async def lag(self) -> None:
        """A watch that nobody reads while much happens; then it reads all of it, or leaves."""
        async with self._session() as session_id:
            call = self._client.events.WatchEvents(session_id=session_id)
            await call.read()
            await talk(self._client, "/words 20000", session_id)
            if self._rng.random() < 0.5:
                while not _has_ended(await call.read()):
                    pass
            call.cancel()

    async def resume(self) -> None:
        """A watch that goes on where another one was cut, over and over."""
        async with self._session() as session_id:
            await self._client.messages.SendMessage(ask("/rate 100\n/words 60", session_id))
            request = WatchEventsRequest(session_id=session_id, from_beginning=True)
            ended = False
            while not ended:
                call = self._client.events.WatchEvents(request)
                for _ in range(self._rng.randint(1, 8)):
                    batch: WatchEventsResponse = await call.read()
                    if batch.resume_token:
                        request = WatchEventsRequest(session_id=session_id, resume_token=batch.resume_token)
                    if ended := _has_ended(batch):
                        break
                call.cancel()

    async def simple(self) -> None:
        """The stream of the fixed contract."""
        call = self._client.events.SubscribeGlobalEvents()
        async with self._session("some words\n/words 200"):
            for _ in range(3):
                await _soon(call.read())
        call.cancel()

    async def page(self) -> None:
        """A watch through the web listener, dropped or read to the end of an answer; and a call without a stream."""
        async with self._session() as session_id:
            leaves = self._rng.random() < 0.5
            request = WatchEventsRequest(session_id=session_id, after_sequence=0)
            async with self._web.stream("event.EventService/WatchEvents", request) as stream:
                parts = [{"text": {"text": "/rate 200\n/words 40"}}]
                await self._web.json("message.MessageService/SendMessage", {"sessionId": session_id, "parts": parts})
                async for envelope in stream:
                    if leaves or _has_ended(WatchEventsResponse.FromString(envelope.data)):
                        break

    async def model(self) -> None:
        """An answer of a model server that may be well, broken or silent; see `reply`."""
        async with self._session() as session_id:
            await self._client.messages.SendMessage(ask("go", session_id, model=model("any", "local")))
            await asyncio.sleep(self._rng.uniform(0, 0.3))
            if self._rng.random() < 0.5:
                await self._client.messages.AbortSession(session_id=session_id)


class Models:
    """Answers of the model server: well, broken or never, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def reply(self, request: RecordedRequest) -> ScriptedReply:
        """Returns the next answer."""
        whole, silent = answer("openai_chat", *(Say("word " * 50) for _ in range(40))), asyncio.Event()
        return self._rng.choice(
            (
                whole,
                ScriptedReply(whole.chunks[: len(whole.chunks) // 2], cut=True),
                ScriptedReply((*whole.chunks[:2], silent)),
                ScriptedReply((silent,)),
                error(500, "broken"),
                error(429, "slow", **{"retry-after": "0"}),
                error(400, "no" * 10_000),
                ScriptedReply((b"data: {\xff\xfe", b"\n\n" * 100)),
                ScriptedReply((b'data: {"choices": [{"delta": {"content": "%b"}}]}\n\n' % (b"x" * 500_000),), cut=True),
            )
        )


def _has_ended(batch: WatchEventsResponse) -> bool:
    return any(event.HasField("turn_ended") for event in batch.events)


async def _soon(read: Awaitable[Any]) -> None:
    """Waits a little for something that may not come."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(read, 0.2)
