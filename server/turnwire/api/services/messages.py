"""opencode.message.MessageService."""

import contextlib
from collections.abc import AsyncGenerator

from opencode.message import message_pb2 as pb
from turnwire.api.services.turn_events import answered_by, events_of_turn
from turnwire.api.wire.answers import explanations, messages
from turnwire.api.wire.codec import end_of_list
from turnwire.api.wire.long import LONG_CHARACTERS, LongAnswer, converted, framed, text_length, with_messages
from turnwire.api.wire.requests import pages
from turnwire.api.wire.requests.checks import required_ids
from turnwire.api.wire.requests.messages import (
    append_request,
    check_message_of_request,
    explain_request,
    send_request,
)
from turnwire.core.intake.requests import Receipt
from turnwire.core.use_cases.explanation import ContextExplainer
from turnwire.core.use_cases.messages import Conversations
from turnwire.core.watches.watch import Batch, Watches
from turnwire.domain.errors import InvalidRequest
from turnwire.domain.principal import Principal


class MessageService:
    """Method by method as the contract describes them."""

    def __init__(self, conversations: Conversations, watches: Watches, explainer: ContextExplainer) -> None:
        """Takes the use cases."""
        self._conversations = conversations
        self._watches = watches
        self._explainer = explainer

    async def SendMessage(self, principal: Principal, request: pb.SendMessageRequest) -> pb.SendMessageResponse:
        """Accepts a message."""
        message, turn = await converted(send_request, request)
        return self._accepted(principal, await self._conversations.send(principal, message, turn))

    async def StreamMessage(
        self, principal: Principal, request: pb.StreamMessageRequest
    ) -> AsyncGenerator[pb.StreamMessageResponse | Batch]:
        """Accepts a message and yields the events of its turn."""
        try:
            receipt = await self._conversations.send(principal, *await converted(send_request, request.message))
        except InvalidRequest as error:
            raise error.within("message") from error
        del request  # megabytes, maybe, and the turn may take an hour
        yield pb.StreamMessageResponse(accepted=self._accepted(principal, receipt))
        async with contextlib.aclosing(events_of_turn(self._watches, principal, answered_by(receipt))) as batches:
            async for batch in batches:
                yield batch

    async def GetMessages(self, principal: Principal, request: pb.GetMessagesRequest) -> bytes:
        """Returns display messages: stored frames, joined."""
        required_ids(session_id=request.session_id)
        page = pages.page(request.page_size, request.page_token, newest_first=request.newest_first)
        found = await self._conversations.display(principal, request.session_id, page)
        return found.frames + end_of_list(found.next_token, truncated=found.truncated)

    async def AbortSession(self, principal: Principal, request: pb.AbortSessionRequest) -> pb.AbortSessionResponse:
        """Ends the running turn."""
        required_ids(session_id=request.session_id)
        aborted = await self._conversations.abort(
            principal, request.session_id, request.expected_turn_id, keep_queue=request.keep_queue
        )
        return pb.AbortSessionResponse(turn_id=aborted.turn_id, dropped_message_ids=aborted.dropped_message_ids)

    async def GetMessage(self, principal: Principal, request: pb.GetMessageRequest) -> LongAnswer:
        """Returns one message in full."""
        if name := request.message_request_id:
            check_message_of_request(request)
            message = await self._conversations.message_of_request(principal, request.session_id, name)
        else:
            required_ids(session_id=request.session_id, message_id=request.message_id)
            message = await self._conversations.message(principal, request.session_id, request.message_id)
        return with_messages((message,), pb.GetMessageResponse(), "message")

    async def ListMessages(self, principal: Principal, request: pb.ListMessagesRequest) -> LongAnswer:
        """Returns a page of messages in full."""
        required_ids(session_id=request.session_id)
        page = pages.page(
            request.page_size,
            request.page_token,
            newest_first=request.newest_first,
            default=pages.DEFAULT_PAGE_SIZE,
        )
        found = await self._conversations.messages(principal, request.session_id, page)
        rest = pb.ListMessagesResponse(
            next_page_token=found.next_token,
            sequence=found.sequence,
            resume_token=await self._watches.tokens.give_reader(principal.tenant, request.session_id, found.sequence),
        )
        if text_length(found.messages) > LONG_CHARACTERS:
            return with_messages(found.messages, rest)
        return await framed(found.messages, messages.message, rest)

    async def AppendMessage(self, principal: Principal, request: pb.AppendMessageRequest) -> pb.AppendMessageResponse:
        """Stores a message without a turn."""
        receipt = await self._conversations.append(principal, await converted(append_request, request))
        return pb.AppendMessageResponse(
            message_id=receipt.message_id, sequence=receipt.sequence, resume_token=self._token(principal, receipt)
        )

    async def ExplainContext(
        self, principal: Principal, request: pb.ExplainContextRequest
    ) -> pb.ExplainContextResponse:
        """Returns what a model would be sent."""
        return explanations.explanation(
            await self._explainer.explain(principal, await converted(explain_request, request))
        )

    def _token(self, principal: Principal, receipt: Receipt) -> str:
        return self._watches.tokens.give(principal.tenant, receipt.session_id, receipt.sequence)

    def _accepted(self, principal: Principal, receipt: Receipt) -> pb.SendMessageResponse:
        return pb.SendMessageResponse(
            session_id=receipt.session_id,
            message_id=receipt.message_id,
            turn_id=receipt.turn_id,
            disposition=messages.disposition(queued=receipt.queued, duplicate=receipt.duplicate),
            queue_position=receipt.queue_position,
            sequence=receipt.sequence,
            resume_token=self._token(principal, receipt),
        )
