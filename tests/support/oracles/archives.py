"""Sessions of archives: the golden history and random ones, with ids as Turnwire makes them."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from tests.support.fakes.domain_values import NOW, make_session, make_turn
from tests.support.oracles.golden_history import CONTENTS, HISTORY
from tests.support.oracles.histories import FILES
from turnwire.domain.archive.records import (
    ArchivedFile,
    ArchivedMessage,
    ArchivedSession,
    ArchivedTurn,
    Record,
    SessionEnd,
)
from turnwire.domain.conversation.messages import (
    Compaction,
    File,
    FinishReason,
    Message,
    MessageStatus,
    ModelRef,
    PartStatus,
    SentContext,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.sessions import Budget, Session
from turnwire.domain.conversation.turns import GenerationOptions, ToolDefinition, Turn, TurnStatus
from turnwire.domain.money import Usage

STORED = {**{hashlib.sha256(content).hexdigest(): content for content in CONTENTS.values()}, **FILES}
"""Bytes of files by hash."""


def real_id(prefix: str, name: str) -> str:
    """Returns an id of the form that Turnwire makes, always the same for a name."""
    return f"{prefix}_{hashlib.sha256(f'{prefix} {name}'.encode()).hexdigest()[:32]}"


def golden_session(name: str = "golden", **fields: Any) -> Session:
    """Returns a session in which every setting is set."""
    return make_session(
        real_id("ses", name),
        **{
            "title": "A trip ⚓",
            "model": ModelRef("claude", "claude-opus-4-8"),
            "agent": "boatswain",
            "tools": (ToolDefinition("tide", "Tells the tide.", '{"type":"object"}'),),
            "compaction": False,
            "budget": Budget(max_tokens=10, max_cost_pico_usd=2**60),
            "labels": {"team": "red", "a.b/c": ""},
            "metadata_json": '{"a": 1.0}',
            "system": "",
            "options": GenerationOptions(temperature=0.5, stop_sequences=("END",), max_steps=3),
        }
        | fields,
    )


def golden_records(name: str = "golden", history: Iterable[Message] = HISTORY) -> list[Record]:
    """Returns a whole session: a history, in a turn that used something, with a summary and hidden messages."""
    session = golden_session(name)
    turn = _turn(session, name)
    messages = [_final(message, session, name) for message in history]
    if messages:
        messages[0] = msgspec.structs.replace(messages[0], message_id=turn.user_message_id, turn_id=turn.turn_id)
        last = messages[-1]
        messages[-1] = msgspec.structs.replace(
            last,
            compaction=Compaction(
                through_message_id=turn.user_message_id, message_count=1, tokens_before=9, tokens_after=1
            ),
            sent_context=SentContext(system_hash="a", tools_hash="b", prefix_hash="c", message_count=3),
            usage=Usage(input_tokens=1, reasoning_tokens=2, reported_output_tokens=7),
            cost_pico_usd=12_345_678_901_234,
            metadata_json='{"x":[]}',
        )
    hidden = {len(messages) - 2, len(messages) - 3} if len(messages) > 5 else set()
    body: list[Record] = [ArchivedTurn(turn)] if messages else []
    body += _with_files((message, number in hidden) for number, message in enumerate(messages))
    return [ArchivedSession(session), *body, SessionEnd(len(messages))]


def _turn(session: Session, name: str) -> Turn:
    return make_turn(
        real_id("trn", name),
        session.session_id,
        user_message_id=real_id("msg", f"{name} first"),
        status=TurnStatus.ENDED,
        finish_reason=FinishReason.STOP,
        started_at=NOW,
        ended_at=NOW,
        system="Be brief.",
        merged_into_turn_id=real_id("trn", f"{name} other"),
        ended_by_message_id=real_id("msg", f"{name} last"),
        usage=Usage(output_tokens=5),
        cost_pico_usd=7,
        steps=2,
        tools=(ToolDefinition("look", "", ""),),
    )


def _with_files(messages: Iterable[tuple[Message, bool]]) -> Iterator[Record]:
    written = set[str]()
    for message, hidden in messages:
        for part in message.parts:
            if isinstance(part.content, File):
                yield from _once(part.content, written)
            elif isinstance(part.content, ToolUse):
                for file in (*part.content.files, part.content.full_output):
                    yield from () if file is None else _once(file, written)
        yield ArchivedMessage(message, hidden)


def _once(file: File, written: set[str]) -> Iterator[Record]:
    if file.sha256 not in written:
        written.add(file.sha256)
        yield ArchivedFile(file.sha256, STORED[file.sha256])


def _final(message: Message, session: Session, name: str) -> Message:
    """Returns a message as it is at rest: final, and naming no file that was never stored."""
    parts = [
        msgspec.structs.replace(
            part,
            part_id=real_id("prt", f"{name} {part.part_id}"),
            index=index,
            content=_final_content(part.content, name),
            status=PartStatus.INTERRUPTED if part.status is PartStatus.STREAMING else part.status,
        )
        for index, part in enumerate(
            part for part in message.parts if not isinstance(part.content, File) or part.content.sha256 in STORED
        )
    ]
    is_open = message.status in (MessageStatus.STREAMING, MessageStatus.QUEUED)
    answers = message.answers_message_id
    return msgspec.structs.replace(
        message,
        message_id=real_id("msg", f"{name} {message.message_id}"),
        session_id=session.session_id,
        answers_message_id=real_id("msg", f"{name} {answers}") if answers else "",
        status=MessageStatus.INTERRUPTED if is_open else message.status,
        turn_id="",
        parts=tuple(parts),
    )


def _final_content(content: Any, name: str) -> Any:
    if isinstance(content, ToolResult) and content.tool_call_id:
        return msgspec.structs.replace(content, tool_call_id=real_id("prt", f"{name} {content.tool_call_id}"))
    if isinstance(content, File):
        return _sized(content)
    if not isinstance(content, ToolUse):
        return content
    kept = content.full_output if content.full_output and content.full_output.sha256 in STORED else None
    return msgspec.structs.replace(
        content,
        status=content.status if content.status.settled else ToolStatus.CANCELLED,
        permission_id="",
        files=tuple(_sized(file) for file in content.files if file.sha256 in STORED),
        full_output=kept and _sized(kept),
    )


def _sized(file: File) -> File:
    return msgspec.structs.replace(file, size_bytes=len(STORED[file.sha256]))
