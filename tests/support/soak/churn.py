"""Clients that do everything at the same time, drawn from a seed, until they are stopped."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from opencode.event.event_pb2 import SubscribeGlobalEventsRequest, WatchEventsRequest, WatchEventsResponse
from opencode.file.upload_pb2 import CreateUploadRequest, DeleteUploadRequest, WriteUploadRequest
from opencode.message.message_pb2 import AbortSessionRequest, ExplainContextRequest
from opencode.question.question_pb2 import (
    QUESTION_ACTION_ACCEPT,
    QUESTION_ACTION_DECLINE,
    AnswerQuestionRequest,
    ListQuestionsRequest,
)
from opencode.search.search_pb2 import SearchMessagesRequest
from opencode.session.session_pb2 import (
    ArchiveSessionRequest,
    DeleteSessionRequest,
    ForkSessionRequest,
    ListSessionsRequest,
    UnarchiveSessionRequest,
)
from opencode.transfer.transfer_pb2 import ImportSessionsRequest
from tests.support.chaos.traffic import Traffic
from tests.support.clients.archives import export, upload
from tests.support.clients.conversation import FOREVER, ask, file, model, new_session, talk
from tests.support.clients.web import WebClient
from tests.support.models.scripts import Say, answer, error
from tests.support.servers.provider import RecordedRequest, ScriptedReply
from tests.support.servers.running import Client

PATIENCE_SECONDS = 240.0
"""For one thing; a busy machine is slow."""

EXPECTED = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)
"""How things end that come too early, too late or too often."""


class Churn:
    """Clients of one server. Each method is one thing, begun and ended."""

    def __init__(self, client: Client, web: WebClient, seed: int) -> None:
        """Takes a client of each listener, which their owner closes, and what decides the order of things."""
        self.done: Counter[str] = Counter()
        """How often each thing was done; `NAME CODE` when it was refused."""
        self._client = client
        self._web = web
        self._rng = random.Random(seed)
        self._number = 0

    async def run(self, until: Callable[[], bool], workers: int) -> None:
        """Does things until told to stop, each worker one after the other and each at least once in all.

        Raises:
            grpc.aio.AioRpcError: a thing failed in a way that nothing explains.
        """
        async with asyncio.TaskGroup() as group:
            left: list[Callable[[], Awaitable[None]]] = []
            group.create_task(self._traffic(until))
            for _ in range(workers):
                group.create_task(self._work(until, left))

    async def clear(self) -> None:
        """Deletes all sessions, with their turns."""
        request = ListSessionsRequest(page_size=100)
        for archived in (False, True):
            request.archived = archived
            while found := (await self._client.sessions.ListSessions(request)).sessions:
                for session in found:
                    with contextlib.suppress(grpc.aio.AioRpcError):
                        await self._client.sessions.DeleteSession(DeleteSessionRequest(session_id=session.id))

    async def _traffic(self, until: Callable[[], bool]) -> None:
        """Conversations with all that changes one; the next session begins when each was done."""
        while True:
            self._number += 1
            session_id = await new_session(self._client, title=f"traffic {self._number}")
            traffic = Traffic(self._client, session_id, self._rng.randrange(2**32), _never)
            await traffic.once()
            self.done += traffic.done
            await self._delete(session_id)
            if until():
                return

    async def _work(self, until: Callable[[], bool], left: list[Callable[[], Awaitable[None]]]) -> None:
        things = (self.copies, self.archive, self.search, self.watch, self.lag, self.resume, self.simple, self.page)
        things += (self.files, self.model, self.question, self.storm, self.steps)
        while not until():
            if not left:
                left += self._rng.sample(things, len(things))
            thing = left.pop()
            name = thing.__name__
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await thing()
            except grpc.aio.AioRpcError as error:
                if error.code() not in EXPECTED:
                    raise
                name += f" {error.code().name}"
            self.done[name] += 1

    async def copies(self) -> None:
        """A session is forked; both are deleted, one of them while it answers."""
        session_id = await self._session()
        fork = (await self._client.sessions.ForkSession(ForkSessionRequest(session_id=session_id))).session.id
        await self._client.messages.SendMessage(ask(f"/rate 50\n/words 100\n{FOREVER}", fork))
        await self._pause()
        await self._delete(fork, session_id)

    async def archive(self) -> None:
        """A session is archived, brought back, written to an archive, and read from it again and again."""
        sessions, session_id = self._client.sessions, await self._session()
        await sessions.ArchiveSession(ArchiveSessionRequest(session_id=session_id))
        await sessions.UnarchiveSession(UnarchiveSessionRequest(session_id=session_id))
        archive = await export(self._client, session_id)
        await self._delete(session_id)
        for content in (archive, archive[: len(archive) // 2], b"no archive"):
            await self._bring(content)
        await self._delete(session_id)

    async def search(self) -> None:
        """A search, and what a model would be sent."""
        session_id = await self._session()
        found = await self._client.search.SearchMessages(SearchMessagesRequest(query="words OR plan*"))
        assert found is not None
        await self._client.messages.ExplainContext(ExplainContextRequest(session_id=session_id))
        await self._delete(session_id)

    async def watch(self) -> None:
        """A watch of all sessions that is dropped without a word."""
        call = self._client.events.WatchEvents(WatchEventsRequest())
        for _ in range(self._rng.choice((0, 1, 5))):
            await _soon(call.read())
        call.cancel()

    async def lag(self) -> None:
        """A watch that nobody reads while much happens; then it reads all of it, or leaves."""
        session_id = await new_session(self._client)
        call = self._client.events.WatchEvents(WatchEventsRequest(session_id=session_id))
        await call.read()
        await talk(self._client, "/words 20000", session_id)
        if self._rng.random() < 0.5:
            while not any(event.HasField("turn_ended") for event in (await call.read()).events):
                pass
        call.cancel()
        await self._delete(session_id)

    async def resume(self) -> None:
        """A watch that goes on where another one was cut, over and over."""
        session_id, token = await new_session(self._client), ""
        await self._client.messages.SendMessage(ask("/rate 100\n/words 60", session_id))
        ended = False
        while not ended:
            request = WatchEventsRequest(session_id=session_id)
            if token:
                request.resume_token = token
            else:
                request.after_sequence = 0
            call = self._client.events.WatchEvents(request)
            for _ in range(self._rng.randint(1, 8)):
                batch: WatchEventsResponse = await call.read()
                token = batch.resume_token or token
                ended = ended or any(event.HasField("turn_ended") for event in batch.events)
                if ended:
                    break
            call.cancel()
        await self._delete(session_id)

    async def simple(self) -> None:
        """The stream of the fixed contract."""
        call = self._client.events.SubscribeGlobalEvents(SubscribeGlobalEventsRequest())
        session_id = await self._session()
        for _ in range(3):
            await _soon(call.read())
        call.cancel()
        await self._delete(session_id)

    async def page(self) -> None:
        """A watch through the web listener, dropped or read to the end of an answer; and a call without a stream."""
        made = await self._web.json("session.SessionService/CreateSession", {"title": "web"})
        session_id = made.json()["id"]
        leaves = self._rng.random() < 0.5
        request = WatchEventsRequest(session_id=session_id, after_sequence=0)
        async with self._web.stream("event.EventService/WatchEvents", request) as stream:
            parts = [{"text": {"text": "/rate 200\n/words 40"}}]
            await self._web.json("message.MessageService/SendMessage", {"sessionId": session_id, "parts": parts})
            async for envelope in stream:
                events = WatchEventsResponse.FromString(envelope.data).events
                if leaves or any(event.HasField("turn_ended") for event in events):
                    break
        await self._delete(session_id)

    async def files(self) -> None:
        """Files: in a message, in pieces that are completed, and in pieces that are given up."""
        uploads = self._client.uploads
        for last in (True, False):
            upload_id = (await uploads.CreateUpload(CreateUploadRequest())).upload.upload_id
            for offset in (0, 100_000):
                data = self._rng.randbytes(100_000)
                write = WriteUploadRequest(upload_id=upload_id, offset=offset, data=data, last=last and offset > 0)
                await uploads.WriteUpload(write)
            await uploads.DeleteUpload(DeleteUploadRequest(upload_id=upload_id))
        session_id = await new_session(self._client)
        request = ask("look", session_id)
        request.parts.append(file(data=self._rng.randbytes(300_000), filename="x.bin", mime="application/zip"))
        await self._client.messages.SendMessage(request)
        await self._pause()
        await self._delete(session_id)

    async def model(self) -> None:
        """An answer of a model server that may be well, broken or silent; see `reply`."""
        session_id = await new_session(self._client)
        await self._client.messages.SendMessage(ask("go", session_id, model=model("any", "local")))
        await self._pause()
        if self._rng.random() < 0.5:
            await self._client.messages.AbortSession(AbortSessionRequest(session_id=session_id))
        await self._delete(session_id)

    async def question(self) -> None:
        """A tool of an MCP server asks: the question is answered, declined, or left while its session goes."""
        session_id = await new_session(self._client)
        words = '/tool ask.paint {"what": "the door"}\n/tool ask.add {"a": 1, "b": 2}'
        await self._client.messages.SendMessage(ask(words, session_id))
        listing = ListQuestionsRequest(session_id=session_id)
        while not (asked := (await self._client.questions.ListQuestions(listing)).questions):
            await asyncio.sleep(0.05)
        how = self._rng.choice((QUESTION_ACTION_ACCEPT, QUESTION_ACTION_DECLINE, None))
        if how is not None:
            reply = AnswerQuestionRequest(session_id=session_id, question_id=asked[0].question_id, action=how)
            reply.content_json = '{"colour": "red"}' if how == QUESTION_ACTION_ACCEPT else ""
            await self._client.questions.AnswerQuestion(reply)
            await self._pause()
        await self._delete(session_id)

    async def storm(self) -> None:
        """One named request from many at once: it counts once."""
        self._number += 1
        name = f"storm {self._number}"
        request = ask("/words 5", await new_session(self._client), request_id=name)
        answers = await asyncio.gather(*(self._client.messages.SendMessage(request) for _ in range(20)))
        assert len({answer.message_id for answer in answers}) == 1
        await self._delete(request.session_id)

    async def steps(self) -> None:
        """A turn of many steps, which calls a tool that does not exist."""
        session_id = await new_session(self._client)
        await talk(self._client, "/tool nothing {}\n/step\n" * 5 + "Done.", session_id)
        await self._delete(session_id)

    async def _session(self) -> str:
        session_id = await new_session(self._client, title="churn")
        await talk(self._client, "some words about a plan\n/words 200", session_id)
        return session_id

    async def _delete(self, *session_ids: str) -> None:
        for session_id in session_ids:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self._client.sessions.DeleteSession(DeleteSessionRequest(session_id=session_id))

    async def _bring(self, archive: bytes) -> None:
        """Imports an archive, if it is one, and drops its upload."""
        upload_id = await upload(self._client, archive)
        try:
            async for _ in self._client.transfer.ImportSessions(ImportSessionsRequest(upload_id=upload_id)):
                pass
        except grpc.aio.AioRpcError as failed:
            if failed.code() not in (*EXPECTED, grpc.StatusCode.INVALID_ARGUMENT):
                raise
        with contextlib.suppress(grpc.aio.AioRpcError):  # a good one has used it up
            await self._client.uploads.DeleteUpload(DeleteUploadRequest(upload_id=upload_id))

    async def _pause(self) -> None:
        await asyncio.sleep(self._rng.uniform(0, 0.3))


class Models:
    """Answers of the model server: well, broken or never, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        """Takes the seed."""
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


async def _soon(read: Awaitable[Any]) -> None:
    """Waits a little for something that may not come."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(read, 0.2)


async def _never() -> Client:
    raise AssertionError("nobody kills this server")
