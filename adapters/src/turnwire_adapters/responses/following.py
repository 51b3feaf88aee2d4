"""Reads responses: as they are now, or until they end, over lost connections and restarts of the server."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from opencode.event.event_pb2 import WatchEventsRequest
from opencode.event.event_pb2_grpc import EventServiceStub
from opencode.message.content_pb2 import SessionMessage
from opencode.message.message_pb2 import GetMessageRequest, ListMessagesRequest
from opencode.message.message_pb2_grpc import MessageServiceStub
from opencode.turn.turn_pb2 import TURN_STATUS_QUEUED, Turn
from opencode.turn.turn_service_pb2 import WatchTurnRequest
from opencode.turn.turn_service_pb2_grpc import TurnServiceStub
from turnwire_adapters.responses.errors import ApiError, not_found
from turnwire_adapters.responses.ids import ResponseId, read_item_id, response_id
from turnwire_adapters.responses.items import Item, waits_for_client
from turnwire_adapters.responses.objects import Outcome, facts_of, response_object
from turnwire_adapters.responses.requests import SERVERS, STRICT
from turnwire_adapters.responses.streaming import Event, ResponseStream
from turnwire_client import Client, NotFoundError, OutOfRangeError, TurnwireError, UnavailableError

PATIENCE_SECONDS = 120.0
"""Maximum time for which a response is followed while no server answers: a restart takes seconds."""

PAUSE_SECONDS = 0.5
"""Between two attempts to go on."""

_FACTS_OF_TURN = ("conversation", SERVERS, STRICT)
"""Facts of the request that began a turn; they hold for all responses of the turn."""

SILENCE_SECONDS = 40.0
"""Without a word for so long, a connection counts as lost: the server says something every 15 seconds."""


@dataclass(frozen=True, slots=True)
class Known:
    """The constant part of a response."""

    named: ResponseId
    turn: Turn
    facts: dict[str, Any]
    """Facts that the request that began the turn stored with its message."""

    def show(self, outcome: Outcome, facts: dict[str, Any]) -> dict[str, Any]:
        """Returns the response object."""
        own = self.facts
        if self.named.segment:
            # Results have begun it, and have facts of their own; what was offered, and where, is the turn's.
            before = response_id(self.named.session_id, self.named.turn_id, self.named.segment - 1)
            kept = {name: value for name, value in own.items() if name in _FACTS_OF_TURN}
            own = {"previous_response_id": None if "conversation" in own else before, **kept, **facts}
        return response_object(self.named, self.turn, own, outcome)

    def stream(self, after: int = -1) -> ResponseStream:
        """Returns a fold of the response that has seen nothing yet."""
        tools = [tool.name for tool in self.turn.settings.tools]
        return ResponseStream(self.named.session_id, self.named.segment, tools, self.show, after=after)


async def known(client: Client, named: ResponseId) -> Known:
    """Returns what is known of a response. Raises ApiError (404) when there is none, TurnwireError."""
    try:
        turn = await client.turn(named.session_id, named.turn_id)
        message = await message_of(client, named.session_id, turn.user_message_id)
    except NotFoundError:
        raise not_found("Response", response_id(*named)) from None
    return Known(named, turn, facts_of(message.metadata_json))


async def message_of(client: Client, session_id: str, message_id: str) -> SessionMessage:
    """Returns a message. Raises TurnwireError."""
    request = GetMessageRequest(session_id=session_id, message_id=message_id)
    return (await client.call(client.stub(MessageServiceStub).GetMessage, request)).message


async def waited_for(client: Client, items: Iterable[Item]) -> list[Item]:
    """Returns those of these calls and questions because of which a turn still waits for the client."""
    waiting = []
    for item in items:
        place = read_item_id(item["id"])
        message = await message_of(client, place.session_id, place.message_id)
        if waits_for_client(message.parts[place.part].tool_use):
            waiting.append(item)
    return waiting


async def _is_listed(client: Client, turn: Turn) -> bool:
    """Returns whether the conversation still has a turn that has ended: one that was deleted is hidden."""
    request = ListMessagesRequest(session_id=turn.session_id, newest_first=True, page_size=20)
    while True:
        page = await client.call(client.stub(MessageServiceStub).ListMessages, request)
        if any(one.turn_id == turn.turn_id or one.message_id == turn.user_message_id for one in page.messages):
            return True
        if not page.next_page_token:
            return False
        request.page_token = page.next_page_token


async def current(client: Client, named: ResponseId) -> tuple[dict[str, Any], ResponseStream]:
    """Returns a response as it is now, and the fold of it.

    Raises:
        ApiError: 404, there is none; 410, the server no longer keeps its events.
        TurnwireError: the server does not answer, or refuses.
    """
    it = await known(client, named)
    stream = it.stream()
    if it.turn.HasField("end_time") and it.turn.start_sequence and not await _is_listed(client, it.turn):
        raise not_found("Response", response_id(*named))
    if not it.turn.start_sequence:  # it waits, or was dropped before it began
        waits = it.turn.status == TURN_STATUS_QUEUED
        stream.outcome.status = "queued" if waits else "cancelled"
        if named.segment:
            raise not_found("Response", response_id(*named))
        return it.show(stream.outcome, {}), stream
    request = WatchEventsRequest(session_id=named.session_id, after_sequence=it.turn.start_sequence - 1)
    events = client.stream(client.stub(EventServiceStub).WatchEvents, request, silence_seconds=SILENCE_SECONDS)
    try:
        async with aclosing(events) as batches:
            async for batch in batches:
                kinds = {event.WhichOneof("kind") for event in batch.events}
                if "resync" in kinds:
                    raise _compacted(named)
                stream.feed(event for event in batch.events if event.turn_id in ("", named.turn_id))
                if stream.ended or "caught_up" in kinds:
                    break
    except OutOfRangeError:
        raise _compacted(named) from None
    awaited = [] if stream.ended else stream.awaited
    if not stream.begun or (awaited and await waited_for(client, awaited) == awaited):
        raise not_found("Response", response_id(*named))
    shown = it.show(stream.outcome, stream.facts)
    return {**shown, "output": stream.output()}, stream


async def follow(client: Client, named: ResponseId, after: int = -1) -> AsyncIterator[list[Event]]:
    """Yields the events of a response behind a place, until its end, in batches.

    Raises:
        ApiError: 404, there is none; 410, the server no longer keeps its events.
        TurnwireError: the server refuses, or did not answer for PATIENCE_SECONDS.
    """
    it = await known(client, named)
    request = WatchTurnRequest(session_id=named.session_id, turn_id=named.turn_id)
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        stream = it.stream(after)
        try:
            events = client.stream(client.stub(TurnServiceStub).WatchTurn, request, silence_seconds=SILENCE_SECONDS)
            async with aclosing(events) as batches:
                async for batch in batches:
                    until = time.monotonic() + PATIENCE_SECONDS
                    if any(event.HasField("resync") for event in batch.events):
                        break
                    if told := stream.feed(batch.events):
                        after = told[-1]["sequence_number"]
                        yield told
                    if stream.ended:
                        return
                else:
                    raise not_found("Response", response_id(*named))  # the turn has ended without such a response
        except OutOfRangeError:
            raise _compacted(named) from None
        except NotFoundError:
            raise not_found("Response", response_id(*named)) from None
        except TurnwireError as error:
            is_cut = isinstance(error, UnavailableError) or not error.reason
            if not is_cut or time.monotonic() > until:
                raise
        await asyncio.sleep(PAUSE_SECONDS)


async def finished(client: Client, named: ResponseId) -> dict[str, Any]:
    """Waits for the end of a response and returns it. Raises as `follow`."""
    async for events in follow(client, named):
        if events[-1]["type"] in ("response.completed", "response.failed", "response.incomplete"):
            response: dict[str, Any] = events[-1]["response"]
            return response
    raise not_found("Response", response_id(*named))


def _compacted(named: ResponseId) -> ApiError:
    message = f"The events of response '{response_id(*named)}' are no longer kept; its conversation is."
    return ApiError(message, status=410, code="events_compacted")
