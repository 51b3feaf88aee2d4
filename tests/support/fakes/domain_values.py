"""Sessions, turns and messages as short calls, all at one fixed moment."""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from turnwire.domain.conversation.events import (
    DurableKind,
    MessageAdded,
    SessionCreated,
    SessionDeleted,
    SessionView,
    TurnEnded,
)
from turnwire.domain.conversation.messages import (
    Content,
    File,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    ModelRef,
    Part,
    PartStatus,
    Text,
)
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.questions import Question, SchemaForm
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.errors import InvalidRequest
from turnwire.ports.commit import Change, Commit, FileChange, NewEvent, PutMessage, PutSession, RemoveSession

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
"""The moment of everything that does not say another."""


def later(seconds: float) -> datetime:
    """Returns a moment after NOW."""
    return NOW + timedelta(seconds=seconds)


def violations_of(function: Callable[..., object], *arguments: object, **keywords: object) -> list[tuple[str, str]]:
    """Returns field and reason of all that makes a call refuse its request."""
    with pytest.raises(InvalidRequest) as caught:
        function(*arguments, **keywords)
    return [(violation.field, violation.reason) for violation in caught.value.violations]


def make_session(session_id: str = "ses_1", **fields: object) -> Session:
    """Returns a new session."""
    return Session(**{"session_id": session_id, "created_at": NOW, "updated_at": NOW, **fields})


def make_turn(turn_id: str = "trn_1", session_id: str = "ses_1", **fields: object) -> Turn:
    """Returns a running turn."""
    defaults = {
        "turn_id": turn_id,
        "session_id": session_id,
        "user_message_id": "msg_user",
        "status": TurnStatus.RUNNING,
        "created_at": NOW,
        "model": ModelRef("offline", "echo"),
    }
    return Turn(**{**defaults, **fields})


def make_end(turn_id: str = "trn_1", **fields: object) -> TurnEnded:
    """Returns the event of a turn that ended in order."""
    defaults = {"status": TurnStatus.ENDED, "ended_at": NOW, "finish_reason": FinishReason.STOP}
    return TurnEnded(make_turn(turn_id, **{**defaults, **fields}))


def outcome(ended: DurableKind) -> dict[str, object]:
    """Returns what the event of an ended turn says of its outcome: all that is known."""
    assert isinstance(ended, TurnEnded)
    names = ("finish_reason", "failure", "usage", "cost_pico_usd", "steps")
    return {name: value for name in names if (value := getattr(ended.turn, name)) not in (None, 0)}


def make_permission(permission_id: str = "per_1", session_id: str = "ses_1", **fields: object) -> PermissionRequest:
    """Returns an open request for the tool fs.write."""
    defaults = {
        "permission_id": permission_id,
        "session_id": session_id,
        "turn_id": "trn_1",
        "message_id": "msg_1",
        "part_index": 0,
        "tool_call_id": "prt_0",
        "tool": "fs.write",
        "patterns": ("fs.write",),
        "title": "fs.write wants to write",
        "created_at": NOW,
    }
    return PermissionRequest(**{**defaults, **fields})


def make_question(question_id: str = "que_1", session_id: str = "ses_1", **fields: object) -> Question:
    """Returns an open question of the tool fs.write."""
    defaults = {
        "question_id": question_id,
        "session_id": session_id,
        "turn_id": "trn_1",
        "message_id": "msg_1",
        "part_index": 0,
        "tool_call_id": "prt_0",
        "source": "fs",
        "tool": "fs.write",
        "prompt": "Which file?",
        "form": SchemaForm('{"type":"object","properties":{"name":{"type":"string"}}}'),
        "created_at": NOW,
        "expires_at": NOW + timedelta(minutes=10),
    }
    return Question(**{**defaults, **fields})


def make_file(content: bytes, filename: str = "a.txt", mime: str = "text/plain") -> File:
    """Returns the reference to some bytes."""
    sha256 = hashlib.sha256(content).hexdigest()
    return File(sha256=sha256, size_bytes=len(content), mime=mime, filename=filename)


def make_part(index: int, content: Content, **fields: object) -> Part:
    """Returns a complete part whose id tells its index."""
    return Part(**{"part_id": f"prt_{index}", "index": index, "content": content, **fields})


def open_part(index: int, content: Content, **fields: object) -> Part:
    """Returns a part that still streams."""
    return make_part(index, content, status=PartStatus.STREAMING, **fields)


def make_message(message_id: str = "msg_1", *contents: Content | str | Part, **fields: object) -> Message:
    """Returns a complete user message of session ses_1; plain text stands for a text part."""
    parts = []
    for index, content in enumerate(contents):
        if isinstance(content, Part):
            parts.append(content)
        else:
            parts.append(make_part(index, Text(content) if isinstance(content, str) else content))
    defaults = {
        "message_id": message_id,
        "session_id": "ses_1",
        "type": MessageType.USER,
        "status": MessageStatus.COMPLETE,
        "created_at": NOW,
        "updated_at": NOW,
        "parts": tuple(parts),
    }
    return Message(**{**defaults, **fields})


def in_order(*messages: Message) -> tuple[Message, ...]:
    """Returns the messages as a store reads them that has got them in this order: each names the one before it."""
    queued = [message for message in messages if message.status is MessageStatus.QUEUED]
    placed = [message for message in messages if message.status is not MessageStatus.QUEUED]
    before = ["", *(message.message_id for message in placed)]
    return (
        *(msgspec.structs.replace(m, previous_message_id=b) for m, b in zip(placed, before, strict=False)),
        *(msgspec.structs.replace(message, previous_message_id="") for message in queued),
    )


def make_answer(message_id: str = "msg_1", *contents: Content | str | Part, **fields: object) -> Message:
    """Returns a complete assistant message of turn trn_1."""
    defaults = {"type": MessageType.ASSISTANT, "turn_id": "trn_1", "answers_message_id": "msg_user"}
    return make_message(message_id, *contents, **{**defaults, **fields})


def put(message: Message) -> PutMessage:
    """Returns the change that writes a message with all of its parts."""
    return PutMessage(message)


def added(message: Message) -> NewEvent:
    """Returns the event that tells of a message."""
    return NewEvent(MessageAdded(message), message.turn_id)


def creating(session_id: str = "ses_1", at: datetime = NOW, *changes: Change) -> Commit:
    """Returns the commit that creates a session, with its event."""
    session = make_session(session_id, created_at=at, updated_at=at)
    event = NewEvent(SessionCreated(SessionView(session)))
    return Commit(session_id=session_id, at=at, changes=(PutSession(session), *changes), events=(event,))


def adding(message: Message, at: datetime = NOW, files: tuple[FileChange, ...] = (), *changes: Change) -> Commit:
    """Returns the commit that adds a message, with its event."""
    return Commit(
        session_id=message.session_id, at=at, changes=(*files, put(message), *changes), events=(added(message),)
    )


def of_tenant(tenant: str, commit: Commit) -> Commit:
    """Returns a commit for a session of another tenant than the default one."""
    return msgspec.structs.replace(commit, tenant=tenant)


def removing(session_id: str = "ses_1") -> Commit:
    """Returns the commit that removes a session, with its last event."""
    return Commit(session_id=session_id, at=NOW, changes=(RemoveSession(),), events=(NewEvent(SessionDeleted()),))
