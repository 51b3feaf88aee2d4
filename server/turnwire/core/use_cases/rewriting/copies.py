"""Copies of conversations: equal content under new ids. Pure, so that it may run on any thread."""

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec
from msgspec import Struct

from turnwire.domain.conversation.messages import (
    FinishReason,
    Message,
    MessageStatus,
    Origin,
    Part,
    ToolResult,
)
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.errors import MessageNotFound, TurnInProgress
from turnwire.domain.ids import IdMaker
from turnwire.ports.conversations import Conversation


class CopiedConversation(Struct, frozen=True):
    """What a copy of a conversation consists of."""

    messages: tuple[Message, ...]
    turns: tuple[Turn, ...]
    """Ended, without what they used: nothing was used in the copy."""
    message_ids: dict[str, str]
    """Ids of the copies by the ids of what they are copies of, in order."""
    stored_bytes: int
    """Bytes of the messages and turns, as they are stored."""

    @property
    def last_id(self) -> str:
        """The last message that was copied; "" when none was."""
        return next(reversed(self.message_ids), "")


def copy_conversation(
    conversation: Conversation, through_message_id: str, session_id: str, new_id: IdMaker, now: datetime
) -> CopiedConversation:
    """Returns a copy of a conversation, or of its beginning.

    It ends before the first message that is still being written or has a call without a result.

    Args:
        conversation: What is copied.
        through_message_id: The last message to copy; "" copies all.
        session_id: The session of the copy.
        new_id: Makes ids.
        now: Ends the copy of a turn that still runs.

    Raises:
        MessageNotFound: the conversation has no such message.
        TurnInProgress: that message, or one before it, is not complete.
    """
    messages = tuple(_beginning(conversation, through_message_id))
    message_ids = {message.message_id: new_id("msg") for message in messages}
    theirs = {message.turn_id for message in messages}  # not those of alternatives, which are not copied
    turns = [turn for turn in conversation.turns if turn.user_message_id in message_ids and turn.turn_id in theirs]
    ids = {
        **message_ids,
        **{turn.turn_id: new_id("trn") for turn in turns},
        **{part.part_id: new_id("prt") for message in messages for part in message.parts},
    }
    copies = tuple(_copy_of_message(message, session_id, ids) for message in messages)
    copied_turns = tuple(_copy_of_turn(turn, session_id, ids, now) for turn in turns)
    return CopiedConversation(
        messages=copies,
        turns=copied_turns,
        message_ids=message_ids,
        stored_bytes=sum(len(msgspec.json.encode(value)) for value in (*copies, *copied_turns)),
    )


def _beginning(conversation: Conversation, through_message_id: str) -> Iterator[Message]:
    """Yields the messages to copy."""
    if through_message_id and all(message.message_id != through_message_id for message in conversation.messages):
        raise MessageNotFound(through_message_id)
    running = {turn.turn_id for turn in conversation.turns if turn.status is not TurnStatus.ENDED}
    for message in conversation.messages:
        if message.status is MessageStatus.STREAMING or (
            message.turn_id in running and not all(call.status.settled for _, call in message.tool_calls())
        ):
            if through_message_id:
                raise TurnInProgress(f"message {message.message_id!r} is not complete", message.turn_id)
            return
        yield message
        if message.message_id == through_message_id:
            return


def _copy_of_message(message: Message, session_id: str, ids: Mapping[str, str]) -> Message:
    compaction = message.compaction
    if compaction is not None:
        through = ids.get(compaction.through_message_id, "")
        compaction = msgspec.structs.replace(compaction, through_message_id=through)
    return msgspec.structs.replace(
        message,
        message_id=ids[message.message_id],
        session_id=session_id,
        parts=tuple(_copy_of_part(part, ids) for part in message.parts),
        turn_id=ids.get(message.turn_id, ""),
        answers_message_id=ids.get(message.answers_message_id, ""),
        previous_message_id="",
        request_id="",
        compaction=compaction,
        origin=Origin(session_id=message.session_id, message_id=message.message_id),
    )


def _copy_of_part(part: Part, ids: Mapping[str, str]) -> Part:
    content = part.content
    if isinstance(content, ToolResult):
        content = msgspec.structs.replace(content, tool_call_id=ids.get(content.tool_call_id, ""))
    return msgspec.structs.replace(part, part_id=ids[part.part_id], copied_id=part.first_id, content=content)


def _copy_of_turn(turn: Turn, session_id: str, ids: Mapping[str, str], now: datetime) -> Turn:
    copy = Turn(
        turn_id=ids[turn.turn_id],
        session_id=session_id,
        tenant=turn.tenant,
        subject=turn.subject,
        user_message_id=ids[turn.user_message_id],
        status=TurnStatus.ENDED,
        created_at=turn.created_at,
        model=turn.model,
        agent=turn.agent,
        options=turn.options,
        started_at=turn.started_at,
        ended_at=turn.ended_at or now,
        finish_reason=turn.finish_reason or FinishReason.INTERRUPTED,
        regenerates=ids.get(turn.regenerates, ""),
        replaces_turn_id=ids.get(turn.replaces_turn_id, ""),
        merged_into_turn_id=ids.get(turn.merged_into_turn_id, ""),
        ended_by_message_id=ids.get(turn.ended_by_message_id, ""),
        failure=turn.failure,
    )
    return copy if turn.status is not TurnStatus.ENDED else msgspec.structs.replace(copy, steps=turn.steps)
