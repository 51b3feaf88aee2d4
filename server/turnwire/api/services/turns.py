"""opencode.turn.TurnService."""

import contextlib
from collections.abc import AsyncGenerator

from opencode.turn import turn_service_pb2 as pb
from turnwire.api.services import STREAM_OPEN
from turnwire.api.services.turn_events import events_of_turn
from turnwire.api.wire.answers import messages, turns
from turnwire.api.wire.long import LongAnswer, converted, framed, with_messages
from turnwire.api.wire.requests import pages
from turnwire.api.wire.requests.checks import required_ids
from turnwire.api.wire.requests.turns import (
    alternatives_request,
    edit_request,
    move_request,
    regenerate_request,
    remove_request,
    select_request,
    start_turn_request,
    turn_statuses,
    turn_token,
)
from turnwire.core.use_cases import UseCases
from turnwire.core.watches.watch import Batch
from turnwire.domain.principal import Principal


class TurnService:
    """Method by method as the contract describes them."""

    def __init__(self, use: UseCases) -> None:
        """Takes the use cases."""
        self._watches = use.watches
        self._late_turns = use.late_turns
        self._paths = use.paths
        self._waiting = use.waiting_messages
        self._tokens = use.watches.tokens
        self._turns = use.turns

    async def GetTurn(self, principal: Principal, request: pb.GetTurnRequest) -> pb.GetTurnResponse:
        """Returns one turn with its settings."""
        required_ids(session_id=request.session_id, turn_id=request.turn_id)
        turn = await self._turns.get(principal, request.session_id, request.turn_id)
        return pb.GetTurnResponse(turn=turns.turn(turn, with_settings=True))

    async def ListTurns(self, principal: Principal, request: pb.ListTurnsRequest) -> bytes:
        """Returns a page of turns."""
        required_ids(session_id=request.session_id)
        page = pages.page(
            request.page_size,
            request.page_token,
            newest_first=request.newest_first,
            default=pages.DEFAULT_PAGE_SIZE,
        )
        statuses = turn_statuses(request.statuses)
        found = await self._turns.list(principal, request.session_id, page, statuses)
        rest = pb.ListTurnsResponse(next_page_token=found.next_token)
        return await framed(found.turns, turns.turn, rest)

    async def WatchTurn(self, principal: Principal, request: pb.WatchTurnRequest) -> AsyncGenerator[Batch]:
        """Yields the events of one turn."""
        watch = await self._turns.watch(
            principal,
            request.session_id,
            request.turn_id,
            request.after_sequence if request.HasField("after_sequence") else None,
            turn_token(request),
        )
        if watch is None:
            return
        yield STREAM_OPEN
        async with contextlib.aclosing(events_of_turn(self._watches, principal, watch)) as batches:
            async for batch in batches:
                yield batch

    async def StartTurn(self, principal: Principal, request: pb.StartTurnRequest) -> pb.StartTurnResponse:
        """Answers a stored message."""
        named, answer = await converted(start_turn_request, request)
        started = await self._late_turns.start(principal, request.session_id, request.user_message_id, named, answer)
        receipt = started.receipt
        return pb.StartTurnResponse(
            turn=turns.turn(started.turn),
            disposition=messages.disposition(queued=receipt.queued, duplicate=receipt.duplicate),
            queue_position=receipt.queue_position,
            sequence=receipt.sequence,
            resume_token=self._tokens.give(principal.tenant, receipt.session_id, receipt.sequence),
        )

    async def ListQueue(self, principal: Principal, request: pb.ListQueueRequest) -> LongAnswer:
        """Returns a page of the messages that wait."""
        required_ids(session_id=request.session_id)
        page = pages.page(request.page_size, request.page_token, default=pages.DEFAULT_PAGE_SIZE)
        found = await self._waiting.list(principal, request.session_id, page)
        rest = pb.ListQueueResponse(
            entries=map(turns.queue_entry, found.entries), revision=found.revision, next_page_token=found.next_token
        )
        return with_messages(found.messages, rest)

    async def EditQueuedMessage(self, principal: Principal, request: pb.EditQueuedMessageRequest) -> LongAnswer:
        """Replaces what a waiting message says."""
        edited = await self._waiting.edit(principal, await converted(edit_request, request))
        return with_messages((edited.message,), pb.EditQueuedMessageResponse(revision=edited.revision), "message")

    async def MoveQueuedMessage(
        self, principal: Principal, request: pb.MoveQueuedMessageRequest
    ) -> pb.MoveQueuedMessageResponse:
        """Moves a waiting message."""
        moved = await self._waiting.move(principal, move_request(request))
        return pb.MoveQueuedMessageResponse(entries=map(turns.queue_entry, moved.entries), revision=moved.revision)

    async def RemoveQueuedMessage(
        self, principal: Principal, request: pb.RemoveQueuedMessageRequest
    ) -> pb.RemoveQueuedMessageResponse:
        """Removes a waiting message."""
        return pb.RemoveQueuedMessageResponse(revision=await self._waiting.remove(principal, remove_request(request)))

    async def RegenerateMessage(
        self, principal: Principal, request: pb.RegenerateMessageRequest
    ) -> pb.RegenerateMessageResponse:
        """Answers a message again."""
        made = await self._late_turns.regenerate(principal, *await converted(regenerate_request, request))
        receipt = made.receipt
        return pb.RegenerateMessageResponse(
            turn=turns.turn(made.turn),
            user_message_id=receipt.message_id,
            disposition=messages.disposition(queued=receipt.queued, duplicate=receipt.duplicate),
            sequence=receipt.sequence,
            resume_token=self._tokens.give(principal.tenant, receipt.session_id, receipt.sequence),
            queued_message_id=receipt.queued_message_id,
            queue_position=receipt.queue_position,
        )

    async def ListAlternatives(self, principal: Principal, request: pb.ListAlternativesRequest) -> LongAnswer:
        """Returns a page of messages that share the one before them."""
        asked = alternatives_request(request)
        page = pages.page(request.page_size, request.page_token, default=pages.DEFAULT_PAGE_SIZE)
        found = await self._paths.alternatives(principal, request.session_id, asked, page)
        rest = pb.ListAlternativesResponse(
            selected_message_id=found.selected_message_id, next_page_token=found.next_token
        )
        return with_messages(found.messages, rest)

    async def SelectAlternative(
        self, principal: Principal, request: pb.SelectAlternativeRequest
    ) -> pb.SelectAlternativeResponse:
        """Chooses between alternatives."""
        named, expected = select_request(request)
        change = await self._paths.select(principal, request.session_id, request.message_id, named, expected)
        token = self._tokens.give(principal.tenant, request.session_id, change.sequence)
        return pb.SelectAlternativeResponse(sequence=change.sequence, resume_token=token)
