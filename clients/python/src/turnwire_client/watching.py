"""A watch of one session, which goes on by itself after every break."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any, Protocol, Self

import grpc

from opencode.event.event_pb2 import DELTA_MODE_ALL, DELTA_MODE_NONE, WatchEventsRequest, WatchEventsResponse
from opencode.event.event_pb2_grpc import EventServiceStub
from opencode.event.session_event_pb2 import EventKind, SessionEvent
from opencode.message.content_pb2 import SessionMessage
from opencode.message.message_pb2 import ListMessagesRequest
from opencode.message.message_pb2_grpc import MessageServiceStub
from turnwire_client.calls import Caller, Pauses, is_transient
from turnwire_client.conversation import Conversation, replace_with
from turnwire_client.errors import TurnwireError, UnauthenticatedError, UnavailableError

SILENCE_SECONDS = 40.0
"""The server says something every 15 seconds: after two heartbeats that did not come, the connection is dead."""

PAGE_SIZE = 1_000
"""Messages of one page of a list; the most that a server answers."""


@dataclass(frozen=True, slots=True)
class Update:
    """One step of a watch."""

    conversation: Conversation
    """The conversation as it is now. The same object in every update of a watch: it changes with the next one."""
    event: SessionEvent | None = None
    """The event that led to this update. None when all was read anew, or the connection was lost."""
    problem: TurnwireError | None = None
    """Why the connection was lost; the watch is connecting again. None otherwise."""

    @property
    def kind(self) -> str:
        """The name of the event's kind, such as "part_delta"; "" for a kind that is newer than this client.

        "read" when the whole conversation was read anew: at the beginning, and when events alone cannot tell what
        changed. "lost" when the connection was lost, once for each time.
        """
        if self.event is not None:
            return self.event.WhichOneof("kind") or ""
        return "read" if self.problem is None else "lost"


class Observer(Protocol):
    """A receiver of each update before the caller gets it, for as long as the watch lasts."""

    def notice(self, update: Update) -> None:
        """Looks at an update; must not wait."""


class Watch:
    """The updates of one session: an asynchronous iterator, and a context manager that ends it.

    It begins with everything (`read`), unless it has a place to begin at, and ends after `session_deleted`. It never
    ends because a connection broke. Not safe for several tasks at once.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        caller: Caller,
        conversation: Conversation,
        *,
        kinds: "Sequence[EventKind.ValueType]" = (),
        deltas: bool = True,
        observe: Callable[[AsyncExitStack], Awaitable[Observer | None]] | None = None,
    ) -> None:
        """Args: see `Client.watch`.

        channel: An open channel; its owner closes it.
        caller: Makes the calls.
        conversation: What is held already; its `resume_token` is where the watch begins, "" for everything.
        kinds: Only these durable kinds; empty for all.
        deltas: Whether a text is told while it grows.
        observe: Makes an observer before the first update; what it enters in the stack ends with the watch. Not a
            generator: one that is collected together with the watch would be closed twice.
        """
        self.conversation = conversation
        """The conversation as it is now."""
        self._caller = caller
        self._events = EventServiceStub(channel)
        self._messages = MessageServiceStub(channel)
        self._kinds = kinds
        self._delta_mode = DELTA_MODE_ALL if deltas else DELTA_MODE_NONE
        self._observe = observe
        # Nobody sees a conversation that is read anew until it has caught up: it has no open requests before.
        self._reading = None if conversation.resume_token else Conversation(conversation.session_id)
        self._reading_pauses = Pauses()
        self._updates = self._observed()

    def __aiter__(self) -> Self:
        """Returns itself."""
        return self

    async def __anext__(self) -> Update:
        """Returns the next update.

        Raises:
            TurnwireError: the watch is refused, so that trying again is of no use.
        """
        return await anext(self._updates)

    async def __aenter__(self) -> Self:
        """Returns itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends the watch."""
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the watch, and the tools that run for it. Idempotent."""
        await self._updates.aclose()

    async def _observed(self) -> AsyncGenerator[Update, None]:
        async with AsyncExitStack() as stack, aclosing(self._resumed()) as updates:
            observer = None if self._observe is None else await self._observe(stack)
            async for update in updates:
                if observer is not None:
                    observer.notice(update)
                yield update

    async def _resumed(self) -> AsyncGenerator[Update, None]:
        """Yields updates over as many streams as it takes."""
        held = self.conversation
        pauses, is_lost, has_renewed = Pauses(), False, False
        while True:
            try:
                if self._reading is not None and not self._reading.resume_token:
                    await self.read(self._reading)
                async with aclosing(self._batches()) as batches:
                    async for batch in batches:
                        pauses, is_lost, has_renewed = Pauses(), False, False
                        for update in self._take(batch):
                            yield update
                        if held.deleted or self._target.needs_reread:
                            break
                if held.deleted:
                    return
                if self._target.needs_reread:
                    await self._begin_reading()
                    continue
                problem: TurnwireError = UnavailableError("the stream ended", code=grpc.StatusCode.UNAVAILABLE)
            except UnauthenticatedError as error:
                if has_renewed or not self._caller.can_renew():
                    raise
                has_renewed, problem = True, error
            except TurnwireError as error:
                if not is_transient(error):
                    raise
                problem = error
            if not is_lost:
                is_lost = True
                yield Update(held, problem=problem)
            await asyncio.sleep(pauses.after(problem))

    @property
    def _target(self) -> Conversation:
        """The conversation to which events are applied."""
        return self.conversation if self._reading is None else self._reading

    def _take(self, batch: WatchEventsResponse) -> Iterator[Update]:
        """Folds a batch and yields what there is to show. Stops at an event that asks to read anew."""
        for event in batch.events:
            counts = self._target.apply(event)
            if self._target.needs_reread:
                return
            if self._reading is None:
                if counts:
                    yield Update(self.conversation, event)
            elif self._reading.deleted or event.WhichOneof("kind") == "caught_up":
                replace_with(self.conversation, self._reading)
                self._reading, self._reading_pauses = None, Pauses()
                yield Update(self.conversation)
        self._target.resume_token = batch.resume_token or self._target.resume_token

    async def _begin_reading(self) -> None:
        """Prepares to read anew; after a pause when the last time led nowhere."""
        if self._reading is not None:
            await asyncio.sleep(self._reading_pauses.after(None))
        self._reading = Conversation(self.conversation.session_id)

    async def _batches(self) -> AsyncGenerator[WatchEventsResponse, None]:
        """Yields the batches of one stream. Raises TurnwireError."""
        request = WatchEventsRequest(
            session_id=self._target.session_id,
            resume_token=self._target.resume_token,
            kinds=self._kinds,
            delta_mode=self._delta_mode,
        )
        stream = self._caller.stream(self._events.WatchEvents, request, silence_seconds=SILENCE_SECONDS)
        async with aclosing(stream) as answers:
            async for answer in answers:
                yield answer

    async def read(self, conversation: Conversation) -> None:
        """Reads the whole conversation. Raises TurnwireError."""
        newest_first: list[SessionMessage] = []
        request: Any = ListMessagesRequest(session_id=conversation.session_id, page_size=PAGE_SIZE, newest_first=True)
        first = page = await self._caller.call(self._messages.ListMessages, request)
        while True:
            newest_first += page.messages
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
            page = await self._caller.call(self._messages.ListMessages, request)
        conversation.reset(reversed(newest_first), sequence=first.sequence, resume_token=first.resume_token)
