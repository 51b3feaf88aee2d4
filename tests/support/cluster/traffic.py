"""Clients that write and watch while nodes fail, and note what they were told for the checks of `guarantees`."""

import asyncio
import contextlib
import itertools
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import grpc

from opencode.event.event_pb2 import WatchEventsRequest
from opencode.message.content_pb2 import MESSAGE_TYPE_USER, SessionMessage
from opencode.message.message_pb2 import SendMessageRequest, SendMessageResponse
from tests.support.clients.conversation import messages_of, new_session, session_of, text, words_of
from tests.support.cluster.guarantees import History, SequencesWithoutGaps, check
from tests.support.cluster.nodes import TRY_SECONDS, Nodes
from tests.support.servers.running import Client

AT_ONE_NODE = 200
"""Batches that the watch of all sessions reads before it goes to another node."""

PAUSE_SECONDS = 0.25
"""Time between two messages of a session, so that few of them wait for their turns."""

LATE_SECONDS = 60.0
"""Time that a watch has to tell of the last event. Later, the check says what is missing."""


@dataclass
class Session:
    """A session with a client that writes and one that watches it; the watch of all sessions has notes of its own."""

    session_id: str
    history: History = field(default_factory=History)
    among_all: History = field(default_factory=History)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when no more is to be written."""
    is_checked: bool = False
    """Whether its notes are gone: no event may come any more."""
    number: int = 0
    """Number of its newest message."""


class Traffic:
    """Sessions that come and go. Use `end` for each of them, and `end_watch` at last."""

    def __init__(self, nodes: Nodes, tasks: asyncio.TaskGroup) -> None:
        """Begins to watch all sessions."""
        self._nodes, self._tasks = nodes, tasks
        self._sessions: dict[str, Session] = {}
        self._working: dict[str, tuple[asyncio.Task[None], asyncio.Task[None]]] = {}
        self._watch = tasks.create_task(self._follow(""))
        self.messages = self.events = 0
        """Acknowledged names and watched events that were checked."""

    async def begin(self, among: Collection[str]) -> Session:
        """Makes a session at one of some nodes, writes to it, and returns it with its first message acknowledged."""
        session = self._session(await self._nodes.surely(new_session, among))
        await self.send(session, among)
        writing = self._tasks.create_task(self._write(session))
        self._working[session.session_id] = writing, self._tasks.create_task(self._follow(session.session_id))
        return session

    async def send(self, session: Session, among: Collection[str] = (), *, again: bool = False) -> None:
        """Sends the next message under a name of its own until it is acknowledged by one of some nodes."""
        session.number += not again
        name = f"{session.session_id}-{session.number}"
        request = SendMessageRequest(session_id=session.session_id, request_id=name, parts=[text(f"say {name}")])

        async def call(client: Client) -> SendMessageResponse:
            return await client.messages.SendMessage(request)

        answer = await self._nodes.surely(call, among)
        session.history.answers.setdefault(name, []).append((f"say {name}", answer.message_id))

    async def end(self, session: Session) -> None:
        """Writes no more to a session, waits until nothing runs in it, and checks what is known of it.

        Raises:
            GuaranteeBroken: what was told and what is stored do not fit.
        """
        session.is_over.set()
        writing, watching = self._working.pop(session.session_id)
        await writing
        history, among_all = session.history, session.among_all
        history.head = among_all.head = await self._at_rest(session.session_id)
        among_all.answers = history.answers
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LATE_SECONDS):
                for one in (history, among_all):
                    while not one.watched or one.watched[-1][0] < history.head:
                        await asyncio.sleep(0.05)
        watching.cancel()
        found = [await self._nodes.surely(self._reads(session.session_id), [name]) for name in self._nodes.names]
        history.stored = among_all.stored = found
        for one in (history, among_all):
            check(one)
            self.events += len(one.watched)
        self.messages += len(history.answers)
        session.is_checked, session.history, session.among_all = True, History(), History()

    def end_watch(self) -> None:
        """Watches all sessions no more."""
        self._watch.cancel()

    async def _write(self, session: Session) -> None:
        while not session.is_over.is_set():
            await self.send(session)
            if session.number % 3 == 0:
                await self.send(session, again=True)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _follow(self, session_id: str) -> None:
        """Watches a session, or all for "", at some node; goes on at another one with the token when the stream ends.

        Now and then it ends the stream of all itself: that survives what happens to other nodes.
        """
        token = ""
        while True:
            begin: dict[str, Any] = {"after_sequence": 0} if session_id else {"from_beginning": True}
            place = {"resume_token": token} if token else begin
            call = self._nodes.any_client().events.WatchEvents(WatchEventsRequest(session_id=session_id, **place))
            try:
                for _ in itertools.count() if session_id else range(AT_ONE_NODE):
                    async with asyncio.timeout(TRY_SECONDS):
                        batch = await call.read()
                    assert batch is not grpc.aio.EOF
                    token = batch.resume_token or token
                    for event in batch.events:
                        self._note(event, is_of_all=not session_id)
            except TimeoutError:
                self._nodes.failures["no answer"] += 1
            except grpc.aio.AioRpcError as error:
                self._nodes.note(error)
                await asyncio.sleep(0.02)
            finally:
                call.cancel()

    def _session(self, session_id: str) -> Session:
        """Returns what is known of a session, of which a watch may tell before the one who makes it has the answer."""
        return self._sessions.setdefault(session_id, Session(session_id))

    def _note(self, event: Any, *, is_of_all: bool) -> None:
        assert not event.HasField("resync"), "the place of a token is not known any more"
        if not event.sequence:
            return
        session = self._session(event.session_id)
        if session.is_checked:
            raise SequencesWithoutGaps(f"{event.sequence} of a session whose last event was watched")
        kind = event.WhichOneof("kind")
        told = getattr(event, kind) if kind in ("message_added", "message_finished") else None
        history = session.among_all if is_of_all else session.history
        history.watched.append((event.sequence, "" if told is None else told.message.message_id))

    async def _at_rest(self, session_id: str) -> int:
        """Returns the newest sequence of a session when nothing runs or waits in it."""
        while True:
            session = await self._nodes.surely(lambda client: session_of(client, session_id))
            if not session.active_turn_id and not session.queued_messages:
                return int(session.head_sequence)
            await asyncio.sleep(0.1)

    @staticmethod
    def _reads(session_id: str) -> Any:
        async def read(client: Client) -> list[tuple[str, str]]:
            return [(one.message_id, told_by(one)) for one in await messages_of(client, session_id)]

        return read


def told_by(message: SessionMessage) -> str:
    """Returns the words of a message; those of an answer, which repeat what was asked, with a mark."""
    return words_of(message) if message.type == MESSAGE_TYPE_USER else f"answer: {words_of(message)}"
