"""Drafts as messages of a session: ids, times, and results in their calls."""

import json
from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec
from msgspec import Struct

from turnwire.domain.conversation.messages import (
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    ModelRun,
    Part,
    ToolResult,
    ToolUse,
)
from turnwire.interop.calls import with_result
from turnwire.interop.ikigai.blocks import Block, Draft, metadata_json


class MadeBy(Struct, frozen=True):
    """The model that made the answers of a conversation. Sealed thinking goes back to that model alone."""

    provider_id: str
    model_id: str
    api: str
    """The provider's API, such as "anthropic"."""


def conversation(
    drafts: Iterable[Draft],
    session_id: str,
    new_id: Callable[[str], str],
    at: datetime,
    made_by: MadeBy | None = None,
) -> list[Message]:
    """Returns the messages of a session in the order of the drafts.

    The result of a call that has none yet is put into that call, which is how a session stores it; a result of an
    unknown call stays a message of its own.

    Args:
        drafts: The conversation.
        session_id: The session that will own the messages.
        new_id: Makes an id with a prefix.
        at: When the messages were stored.
        made_by: The model that answered. None: it is not known, and sealed thinking is kept but sent to no model.
    """
    messages: list[Message] = []
    asked = ""
    open_calls: dict[str, tuple[int, int]] = {}
    for draft in drafts:
        if draft.type is MessageType.TOOL_RESULT and all(_id_of(block) in open_calls for block in draft.blocks):
            for block in draft.blocks:
                index, part_index = open_calls.pop(_id_of(block))
                messages[index] = _with_result(messages[index], part_index, block)
            continue
        message = _message(draft, session_id, new_id, at, made_by)
        if draft.type is MessageType.USER:
            asked = message.message_id
        elif draft.type is MessageType.ASSISTANT:
            message = msgspec.structs.replace(message, answers_message_id=asked)
        for part, call in message.tool_calls():
            open_calls[call.call_id] = (len(messages), part.index)
        messages.append(message)
    return messages


def _message(
    draft: Draft, session_id: str, new_id: Callable[[str], str], at: datetime, made_by: MadeBy | None
) -> Message:
    answered = draft.type is MessageType.ASSISTANT
    calls = any(isinstance(block.content, ToolUse) for block in draft.blocks)
    finish = (FinishReason.TOOL_USE if calls else FinishReason.STOP) if answered else None
    run = ModelRun(provider_id=made_by.provider_id, model_requested=made_by.model_id) if answered and made_by else None
    return Message(
        message_id=new_id("msg"),
        session_id=session_id,
        type=draft.type,
        status=MessageStatus.COMPLETE,
        created_at=at,
        updated_at=at,
        parts=tuple(
            Part(part_id=new_id("prt"), index=index, content=block.content, provider_state=_state(block, made_by))
            for index, block in enumerate(draft.blocks)
        ),
        finish_reason=finish,
        model_run=run,
        metadata_json=metadata_json(draft),
    )


def _state(block: Block, made_by: MadeBy | None) -> str | None:
    if not block.seal:
        return None
    maker = {"api": made_by.api, "model": made_by.model_id} if made_by else {}
    return json.dumps({**maker, **block.seal}, ensure_ascii=False, separators=(",", ":"))


def _id_of(block: Block) -> str:
    return block.content.call_id if isinstance(block.content, ToolResult) else ""


def _with_result(message: Message, index: int, block: Block) -> Message:
    part, result = message.parts[index], block.content
    if not (isinstance(part.content, ToolUse) and isinstance(result, ToolResult)):
        raise TypeError("a result belongs to a call")
    settled = with_result(part.content, result, message.created_at)
    parts = (*message.parts[:index], msgspec.structs.replace(part, content=settled), *message.parts[index + 1 :])
    return msgspec.structs.replace(message, parts=parts)
