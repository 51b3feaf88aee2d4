"""Watches a session, keeps what comes, and asks the server what it has stored."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from opencode.event.event_pb2 import WatchEventsResponse
from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import MESSAGE_STATUS_QUEUED, MESSAGE_STATUS_STREAMING, MESSAGE_TYPE_ASSISTANT
from opencode.message.message_pb2 import ListMessagesRequest, ListMessagesResponse
from opencode.session.session_pb2 import SessionInfo
from tests.support.clients.conversation import session_of
from tests.support.oracles.fold import compared, copies
from tests.support.servers.running import Client
from tests.support.vectors.recording import Cut, Recording, Want
from turnwire_client import Conversation

PATIENCE_SECONDS = 200
PAUSE_SECONDS = 0.01


class Tape:
    """Records the watches of one session, one after the other."""

    def __init__(self, client: Client, session_id: str, start: ListMessagesResponse | None = None) -> None:
        """Takes the session, and the list that its client begins with."""
        self.client = client
        self.session_id = session_id
        self.start = start
        self.held = Conversation(session_id)
        if start is not None:
            self.held.reset(copies(start.messages), sequence=start.sequence, resume_token=start.resume_token)
        self.reached = self.held.sequence
        """The newest sequence of the session that the client was told."""
        self.watches: list[list[SessionEvent]] = []
        self._failure: BaseException | None = None

    @contextlib.asynccontextmanager
    async def watching(self, *, from_here: bool = False, again: bool = False, **fields: Any) -> AsyncIterator[None]:
        """Watches until the end of the block, from where the client is: from the first event, if that is nowhere.

        Args:
            from_here: Watch without a place.
            again: Watch from the first event, whatever the client has.
            **fields: Of the request, besides the place.
        """
        if self.held.resume_token and not again:
            fields["resume_token"] = self.held.resume_token
        elif not from_here:
            fields["from_beginning"] = True
        events: list[SessionEvent] = []
        self.watches.append(events)
        call = self.client.events.WatchEvents(session_id=self.session_id, **fields)
        reading = asyncio.create_task(self._read(call, events))
        try:
            await self.until(lambda: any(e.HasField("caught_up") or e.HasField("session_deleted") for e in events))
            yield
        finally:
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading

    async def _read(self, call: Any, events: list[SessionEvent]) -> None:
        try:
            async for batch in call:
                events.extend(batch.events)
                self._take(batch)
        except grpc.aio.AioRpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):  # killed; left
                self._failure = error
        except Exception as error:
            self._failure = error

    def _take(self, batch: WatchEventsResponse) -> None:
        for event in batch.events:
            self.held.apply(event)
            self.reached = max(self.reached, self.held.sequence, event.caught_up.head_sequence)
        self.held.resume_token = batch.resume_token or self.held.resume_token

    async def until(self, true: Callable[[], Any]) -> None:
        """Waits for a state of what was read.

        Raises:
            TimeoutError: it does not come.
        """
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not true():
                if self._failure is not None:
                    raise self._failure
                await asyncio.sleep(PAUSE_SECONDS)

    async def until_kind(self, kind: str, count: int = 1) -> SessionEvent:
        """Waits until an event of a kind has come so often, in any watch, and returns it."""
        await self.until(lambda: len(self.of_kind(kind)) >= count)
        return self.of_kind(kind)[count - 1]

    def of_kind(self, kind: str) -> list[SessionEvent]:
        """Returns the events of a kind so far."""
        return [event for events in self.watches for event in events if event.WhichOneof("kind") == kind]

    async def until_text(self, words: str) -> None:
        """Waits until an answer says the words."""
        await self.until(lambda: any(words in _text(m) for m in self.held.messages if m.type == MESSAGE_TYPE_ASSISTANT))

    async def until_begun(self) -> None:
        """Waits until an answer streams: what is stored after that has its place behind it."""
        await self.until(lambda: any(m.status == MESSAGE_STATUS_STREAMING for m in self.held.messages))

    async def ended(self, turn_id: str) -> None:
        """Waits until a turn has ended."""
        await self.until(lambda: turn_id in self.held.ended_turns)

    async def rested(self) -> None:
        """Waits until the watch has told all that is stored, and the server has stored all that was told."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self._agrees(await self._stored()):
                if self._failure is not None:
                    raise self._failure
                await asyncio.sleep(PAUSE_SECONDS)

    def _agrees(self, stored: tuple[Want, int]) -> bool:
        want, head = stored
        held = self.held
        return (
            (head, compared(held.messages), held.waiting_ids, compared(held.waiting))
            == (self.reached, want.messages, want.waiting, want.waiting_messages)
            and set(held.permissions) == set(want.permissions)
            and set(held.questions) == set(want.questions)
        )

    async def recorded(self, description: str, cut: Cut = Cut.LEFT_OUT) -> Recording:
        """Returns the recording as it is once the session rests: what is wanted is what the server has stored."""
        await self.rested()
        want, _ = await self._stored()
        await self._check_session()
        return Recording(description, [list(events) for events in self.watches], want, self.start, cut)

    def asked_to_reread(self, description: str) -> Recording:
        """Returns the recording up to the event after which the client reads the list anew."""
        asks = next(
            (number, place)
            for number, events in enumerate(self.watches)
            for place, event in enumerate(events)
            if event.HasField("resync") or event.conversation_changed.reread
        )
        watches = [*self.watches[: asks[0]], self.watches[asks[0]][: asks[1] + 1]]
        return Recording(description, watches, Want(needs_reread=True), self.start)

    async def _stored(self) -> tuple[Want, int]:
        """Returns what the server answers now, of what the client can hold, and the head that it is of."""
        listed = await listing(self.client, self.session_id)
        queue = await self.client.turns.ListQueue(session_id=self.session_id)
        permissions = await self.client.permissions.ListPermissions(session_id=self.session_id)
        questions = await self.client.questions.ListQuestions(session_id=self.session_id)
        known = self._known()
        want = Want(
            compared(m for m in listed.messages if m.status != MESSAGE_STATUS_QUEUED and m.message_id in known),
            [entry.message_id for entry in queue.entries],
            compared(m for m in queue.messages if m.message_id in known),
            [one.id for one in permissions.permissions],
            [one.question_id for one in questions.questions],
            self.held.status,
        )
        if self.held.session is not None:
            want.session = SessionInfo()
            want.session.CopyFrom(self.held.session)
        return want, listed.sequence

    def _known(self) -> set[str]:
        """Returns the ids of all messages that the client was told of; without a place it knows no older ones."""
        told = {m.message_id for m in self.start.messages} if self.start else set()
        told |= {e.message_added.message.message_id for e in self.of_kind("message_added")}
        return told | {e.message_snapshot.message.message_id for e in self.of_kind("message_snapshot")}

    async def _check_session(self) -> None:
        """Checks what was told of the session: status and settings are those that the server has."""
        told, now = self.held.session, await session_of(self.client, self.session_id)
        assert told is not None
        now.settings.ClearField("tools")
        names = (
            "id",
            "status",
            "title",
            "title_from_message",
            "directory",
            "settings",
            "revision",
            "archive_time",
            "origin",
        )
        assert [getattr(told, name) for name in names] == [getattr(now, name) for name in names]


def _text(message: Any) -> str:
    return "".join(part.text.text + part.reasoning.text + part.tool_use.input_json for part in message.parts)


async def listing(client: Client, session_id: str) -> ListMessagesResponse:
    """Returns the list with all its messages, and the place of its first page."""
    request = ListMessagesRequest(session_id=session_id, page_size=1000)
    first = await client.messages.ListMessages(request)
    page = first
    while page.next_page_token:
        request.page_token = page.next_page_token
        page = await client.messages.ListMessages(request)
        first.messages.extend(page.messages)
    first.next_page_token = ""
    return first
