"""Talking to a server in tests: short ways to ask, to watch, and to say what an error was."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from opencode.event.event_pb2 import WatchEventsResponse
from opencode.event.session_event_pb2 import EVENT_KIND_TURN_ENDED, SessionEvent
from opencode.message.content_pb2 import SessionMessage
from opencode.message.message_pb2 import (
    FilePart,
    ListMessagesRequest,
    MessagePart,
    SendMessageRequest,
    SendMessageResponse,
    TextPart,
)
from opencode.model.model_pb2 import ModelName
from opencode.model.selection_pb2 import ModelSelection
from opencode.provider.provider_pb2 import ProviderInfo
from opencode.session.session_pb2 import CreateSessionRequest, SessionSettings, UpdateSessionRequest
from opencode.tool.tool_pb2 import ToolDefinition
from tests.support.oracles.fold import SessionFold
from tests.support.servers.running import Client

FOREVER = "/sleep 600"
"""A directive line for an answer that only an abort ends."""


def text(words: str) -> MessagePart:
    """Returns a text part."""
    return MessagePart(text=TextPart(text=words))


def file(**fields: Any) -> MessagePart:
    """Returns a file part."""
    return MessagePart(file=FilePart(**fields))


def model(model_id: str, provider_id: str = "offline") -> ModelSelection:
    """Returns a choice of a model, as SendMessageRequest takes it."""
    return ModelSelection(provider=ProviderInfo(id=provider_id), model_id=model_id)


def model_name(model_id: str, provider_id: str = "offline") -> ModelName:
    """Returns the name of a model, as every other request takes it."""
    return ModelName(provider_id=provider_id, model_id=model_id)


def tool(name: str, schema: str = "") -> ToolDefinition:
    """Returns the declaration of a client tool."""
    return ToolDefinition(name=name, description=f"does {name}", input_schema_json=schema)


def ask(words: str, session_id: str = "", **fields: Any) -> SendMessageRequest:
    """Returns the request that sends one text."""
    return SendMessageRequest(session_id=session_id, parts=[text(words)], **fields)


def streamed(client: Client, request: SendMessageRequest) -> Any:
    """Returns the running StreamMessage call for a message."""
    return client.messages.StreamMessage(message=request)


async def new_session(client: Client, **settings: Any) -> str:
    """Creates a session with these settings and returns its id."""
    request = CreateSessionRequest(settings=SessionSettings(**settings))
    return (await client.sessions.CreateSession(request)).id


def change_of(session_id: str, **settings: Any) -> UpdateSessionRequest:
    """Returns the request that gives a session exactly these settings; None unsets one."""
    given = SessionSettings(**settings)
    return UpdateSessionRequest(session_id=session_id, settings=given, update_mask=FieldMask(paths=list(settings)))


async def session_of(client: Client, session_id: str) -> Any:
    """Returns the session as GetSession shows it."""
    return (await client.sessions.GetSession(session_id=session_id)).session


async def messages_of(client: Client, session_id: str) -> list[SessionMessage]:
    """Returns all messages of a session in full."""
    request = ListMessagesRequest(session_id=session_id, page_size=1000)
    messages: list[SessionMessage] = []
    while True:
        page = await client.messages.ListMessages(request)
        messages += page.messages
        if not page.next_page_token:
            return messages
        request.page_token = page.next_page_token


async def displayed(client: Client, session_id: str) -> list[Any]:
    """Returns all messages of a session in display form."""
    return list((await client.messages.GetMessages(session_id=session_id)).messages)


def words_of(message: SessionMessage) -> str:
    """Returns the text parts of a message, joined."""
    return "".join(part.text.text for part in message.parts)


def kinds(events: list[SessionEvent]) -> list[str]:
    """Returns the names of the events' kinds."""
    return [event.WhichOneof("kind") or "" for event in events]


class Watch:
    """One open WatchEvents call: reads batches, keeps the events, and folds them when there is a fold."""

    def __init__(self, call: Any, fold: SessionFold | None = None) -> None:
        self.call = call
        self.fold = fold
        self.events: list[SessionEvent] = []
        self.token = ""
        """The newest resume token."""

    async def batch(self) -> list[SessionEvent]:
        """Reads one batch; empty at the end of the stream."""
        response = await self.call.read()
        if response is grpc.aio.EOF:
            return []
        assert response.events, "a batch has at least one event"
        self._note_token(response)
        for event in response.events:
            self.events.append(event)
            if self.fold is not None:
                self.fold.apply(event)
        return list(response.events)

    def _note_token(self, response: WatchEventsResponse) -> None:
        """Checks that a batch has a token when it is due, and keeps it."""
        kept = [name for name in kinds(list(response.events)) if name in ("caught_up", "heartbeat")]
        moved = kept or any(event.sequence for event in response.events)
        assert bool(response.resume_token) == bool(moved), "a token comes with each batch that moves it"
        assert len(response.resume_token) < 60
        self.token = response.resume_token or self.token

    async def until(self, found: Callable[[SessionEvent], bool]) -> SessionEvent:
        """Reads until an event is the wanted one, in those read before too, and returns the first such."""
        seen = 0
        while True:
            for event in self.events[seen:]:
                if found(event):
                    return event
            seen = len(self.events)
            if not await self.batch():
                raise AssertionError(f"the stream ended after {kinds(self.events)}")

    async def until_kind(self, kind: str, count: int = 1) -> SessionEvent:
        """Reads until the count-th event of a kind."""
        left = count

        def found(event: SessionEvent) -> bool:
            nonlocal left
            left -= event.WhichOneof("kind") == kind
            return left == 0

        return await self.until(found)

    async def until_text(self, words: str = "") -> None:
        """Reads until text has streamed that holds the words; it comes in deltas, or in a snapshot."""
        seen = ""

        def found(event: SessionEvent) -> bool:
            nonlocal seen
            if event.HasField("part_delta"):
                seen += event.part_delta.text
            elif event.HasField("message_snapshot"):
                seen = words_of(event.message_snapshot.message)
            return bool(seen) and words in seen

        await self.until(found)

    async def until_turn_ended(self, turn_id: str) -> SessionEvent:
        """Reads until a turn's end."""
        return await self.until(lambda event: event.HasField("turn_ended") and event.turn_id == turn_id)


async def until_at_rest(client: Client, watch: Watch) -> None:
    """Reads with a fold until no turn runs or waits and all that is stored was read.

    The fold alone does not tell: a snapshot is newer than the events behind it, so it may miss a message that waited
    before the start of its turn has come.
    """
    assert watch.fold is not None
    while True:
        session = await session_of(client, watch.fold.session_id)
        while (watch.fold.head or 0) < session.head_sequence:
            assert await watch.batch()
        if not session.active_turn_id and not session.queued_messages:
            return
        if session.active_turn_id in watch.fold.ended_turns:
            await asyncio.sleep(0.01)  # the end is stored, and the session is about to note it
        else:
            assert await watch.batch()


@contextlib.asynccontextmanager
async def watching(
    client: Client, session_id: str = "", fold: SessionFold | None = None, **fields: Any
) -> AsyncIterator[Watch]:
    """Opens a watch, for one session when it is named, and yields when it has begun; cancels it at the end."""
    call = client.events.WatchEvents(session_id=session_id, **fields)
    try:
        await call.initial_metadata()  # it comes with the first events: from here on the watch misses nothing
        yield Watch(call, fold)
    finally:
        call.cancel()


async def turn_ended(client: Client, accepted: SendMessageResponse) -> SessionEvent:
    """Waits for the end of the turn that an answer names, and returns its turn_ended."""
    async with watching(
        client, accepted.session_id, after_sequence=accepted.sequence, kinds=[EVENT_KIND_TURN_ENDED]
    ) as watch:
        return await watch.until_turn_ended(accepted.turn_id)


async def talk(client: Client, words: str, session_id: str = "", **fields: Any) -> SendMessageResponse:
    """Sends a text and waits until its turn has ended."""
    accepted = await client.messages.SendMessage(ask(words, session_id, **fields))
    await turn_ended(client, accepted)
    return accepted


async def answer_to(client: Client, accepted: SendMessageResponse) -> SessionMessage:
    """Returns the last assistant message of a turn."""
    found = [m for m in await messages_of(client, accepted.session_id) if m.answers_message_id == accepted.message_id]
    return found[-1]


@dataclass
class Refusal:
    """An error as the contract describes it."""

    code: grpc.StatusCode
    reason: str
    fields: list[str] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    details: list[str] = field(default_factory=list)
    message: str = ""


def refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    """Reads status and details of an error; a status without exactly one ErrorInfo fails the test."""
    status = rpc_status.from_call(error)
    assert status is not None, f"{error.code()} without details: {error.details()}"
    infos, names, fields = [], [], []
    for packed in status.details:
        name = packed.TypeName().rpartition(".")[2]
        names.append(name)
        detail = getattr(error_details_pb2, name)()
        assert packed.Unpack(detail)
        if name == "ErrorInfo":
            infos.append(detail)
        elif name == "BadRequest":
            fields += [violation.field for violation in detail.field_violations]
            assert all(violation.description and violation.reason for violation in detail.field_violations)
    assert len(infos) == 1
    assert infos[0].domain == "turnwire"
    metadata = dict(infos[0].metadata)
    return Refusal(error.code(), infos[0].reason, fields, metadata, names, status.message)


async def refused(call: Awaitable[Any]) -> Refusal:
    """Awaits a call that must fail and returns how."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return refusal_of(caught.value)


async def refused_unless_gone(call: Awaitable[Any]) -> Refusal | None:
    """Awaits a call that must fail, at a server that stops by itself: None when it stops before the call is answered.

    A server that loses a file finds it at the next commit, or at its look of each second, whichever comes first.
    """
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    if caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return None
    return refusal_of(caught.value)
