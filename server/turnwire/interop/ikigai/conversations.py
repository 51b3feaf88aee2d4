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
    Origin,
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
    growing = Conversation(session_id, new_id, made_by)
    for draft in drafts:
        growing.add(draft, at)
    return growing.messages


class Conversation:
    """Messages of a session that come one after the other, and may be taken back."""

    def __init__(self, session_id: str, new_id: Callable[[str], str], made_by: MadeBy | None = None) -> None:
        """Takes what `conversation` does."""
        self.messages: list[Message] = []
        """All of them, in order."""
        self._session_id = session_id
        self._new_id = new_id
        self._made_by = made_by
        self._shown: list[int] = []
        self._asked: list[int] = []
        self._open_calls: dict[str, tuple[int, int]] = {}

    @property
    def hidden(self) -> list[bool]:
        """Of each message, whether it was taken back."""
        hidden = [True] * len(self.messages)
        for index in self._shown:
            hidden[index] = False
        return hidden

    def add(self, draft: Draft, at: datetime, origin: Origin | None = None) -> None:
        """Adds a message, or a result to its call when that has none yet.

        Args:
            draft: The message.
            at: When it was stored.
            origin: What it is a copy of.
        """
        if draft.type is MessageType.TOOL_RESULT and all(_id_of(block) in self._open_calls for block in draft.blocks):
            for block in draft.blocks:
                index, part_index = self._open_calls.pop(_id_of(block))
                self.messages[index] = _with_result(self.messages[index], part_index, block, at)
            return
        index = len(self.messages)
        message = self._message(draft, at, origin)
        if draft.type is MessageType.USER:
            self._asked.append(index)
        elif draft.type is MessageType.ASSISTANT and self._asked:
            message = msgspec.structs.replace(message, answers_message_id=self.messages[self._asked[-1]].message_id)
        for part, call in message.tool_calls():
            self._open_calls[call.call_id] = (index, part.index)
        self._shown.append(index)
        self.messages.append(message)

    def hide_from(self, first: int) -> None:
        """Takes back all messages from one on, by its place from 0. A call among them gets no more result."""
        for indexes in (self._shown, self._asked):
            while indexes and indexes[-1] >= first:
                for _, call in self.messages[indexes.pop()].tool_calls():
                    self._open_calls.pop(call.call_id, None)

    def _message(self, draft: Draft, at: datetime, origin: Origin | None) -> Message:
        made_by, answered = self._made_by, draft.type is MessageType.ASSISTANT
        calls = any(isinstance(block.content, ToolUse) for block in draft.blocks)
        finish = (FinishReason.TOOL_USE if calls else FinishReason.STOP) if answered else None
        run = (
            ModelRun(provider_id=made_by.provider_id, model_requested=made_by.model_id)
            if answered and made_by
            else None
        )
        return Message(
            message_id=self._new_id("msg"),
            session_id=self._session_id,
            type=draft.type,
            status=MessageStatus.COMPLETE,
            created_at=at,
            updated_at=at,
            parts=tuple(
                Part(
                    part_id=self._new_id("prt"),
                    index=index,
                    content=block.content,
                    provider_state=_state(block, made_by),
                )
                for index, block in enumerate(draft.blocks)
            ),
            finish_reason=finish,
            model_run=run,
            metadata_json=metadata_json(draft),
            origin=origin,
        )


def _state(block: Block, made_by: MadeBy | None) -> str | None:
    if not block.seal:
        return None
    maker = {"api": made_by.api, "model": made_by.model_id} if made_by else {}
    return json.dumps({**maker, **block.seal}, ensure_ascii=False, separators=(",", ":"))


def _id_of(block: Block) -> str:
    return block.content.call_id if isinstance(block.content, ToolResult) else ""


def _with_result(message: Message, index: int, block: Block, at: datetime) -> Message:
    part, result = message.parts[index], block.content
    if not (isinstance(part.content, ToolUse) and isinstance(result, ToolResult)):
        raise TypeError("a result belongs to a call")
    settled = with_result(part.content, result, message.created_at, at)
    parts = (*message.parts[:index], msgspec.structs.replace(part, content=settled), *message.parts[index + 1 :])
    return msgspec.structs.replace(message, parts=parts)
