"""Reads OpenCode's exported sessions."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from turnwire.domain.archive.records import ImportProblem, Record
from turnwire.domain.conversation.messages import Failure, FinishReason, MessageStatus, MessageType, ModelRun
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.money import MAX_USD, PICO_USD, Usage
from turnwire.interop.archive.bounds import ArchiveLimits
from turnwire.interop.archive.conversation import ConversationBuilder, ImportedMessage, conversations_of, nothing_else
from turnwire.interop.archive.documents import anything
from turnwire.interop.archive.values import an_object_at, array, id_at, number_at, objects, seconds_at, text_at
from turnwire.interop.forms import MAX_WHOLE_NUMBER, Json, an_object, refuse, text_of
from turnwire.interop.opencode.parts import Parts
from turnwire.ports.clock import Clock

FINISH = {
    "stop": FinishReason.STOP,
    "tool-calls": FinishReason.TOOL_USE,
    "length": FinishReason.LENGTH,
    "content-filter": FinishReason.CONTENT_FILTER,
    "error": FinishReason.ERROR,
}
"""Values of `finish` and their finish reasons here."""

ABORTED = "MessageAbortedError"
"""The error of an answer that a person stopped."""


class OpenCodeReader:
    """Reads one exported session, an array of them, or JSON Lines of them."""

    keeps_ids = False

    def __init__(self, clock: Clock, bounds: ArchiveLimits) -> None:
        """Args:
        clock: The time of sessions without one.
        bounds: Limits on the archive.
        """
        self._clock = clock
        self._bounds = bounds

    def read(self, source: BinaryIO, options: Mapping[str, str]) -> Iterator[Record | ImportProblem]:
        """As `ArchiveReader.read`. There are no options."""
        nothing_else(options)
        for line, place, value in anything(source, self._bounds):
            yield from conversations_of([(place, value)], partial(self._conversation, line=line), line)

    def _conversation(self, value: Json, line: int) -> tuple[ConversationBuilder, Session]:
        info = an_object(value.get("info"), "info")
        source_id = id_at(info, "id", "info")
        if not source_id:
            refuse("info.id", "is missing")
        if not isinstance(value.get("messages"), list):
            refuse("messages", "is missing" if "messages" not in value else "must be an array")
        conversation = ConversationBuilder(source_id, self._bounds, line)
        time = an_object_at(info, "time", "info")
        at = seconds_at(time, "created", "info.time", 1000) or self._clock()
        if array(value, "todos", ""):
            conversation.problem("NO_PLACE", "Left out: the to-do list.", "todos")
        taken_back = _taken_back(info, conversation)
        parts, system, hidden = Parts(conversation, self._bounds), "", False
        for message, place in objects(value, "messages", ""):
            about = an_object(message.get("info"), f"{place}.info")
            draft = _draft(about, f"{place}.info", at, conversation)
            if draft is None:
                continue
            hidden = hidden or (draft.message_id == taken_back != "")
            draft.hidden = hidden
            parts.fill(draft, message, place)
            conversation.add(draft)
            system = text_at(about, "system", f"{place}.info") or system
        if taken_back and not hidden:
            conversation.problem("MISSING_MESSAGE", "The message that was taken back is missing.", "info.revert")
        session = Session(
            session_id=source_id,
            created_at=at,
            updated_at=max(at, seconds_at(time, "updated", "info.time", 1000) or at),
            title=conversation.title(text_at(info, "title", "info"), "info.title"),
            directory=_directory(info, conversation),
            archived_at=seconds_at(time, "archived", "info.time", 1000),
            system=conversation.system(system, "messages"),
        )
        return conversation, session


def _draft(info: Json, place: str, begun: datetime, conversation: ConversationBuilder) -> ImportedMessage | None:
    role = text_of(info, "role", place)
    time = an_object_at(info, "time", place)
    at = seconds_at(time, "created", f"{place}.time", 1000) or begun
    if role == "user":
        return ImportedMessage(id_at(info, "id", place), MessageType.USER, at)
    if role != "assistant":
        conversation.count("UNKNOWN_CONTENT", "Left out: messages of a role that is not known", f"{place}.role")
        return None
    model = text_at(info, "modelID", place)
    run = ModelRun(provider_id=text_at(info, "providerID", place), model_requested=model) if model else None
    more = _ending(info, place)
    more["updated_at"] = max(at, seconds_at(time, "completed", f"{place}.time", 1000) or at)
    more["usage"] = usage = _usage(info, place)
    more["cost_pico_usd"] = _cost(info, place) if usage is not None else None
    return ImportedMessage(id_at(info, "id", place), MessageType.ASSISTANT, at, model_run=run, more=more)


def _ending(info: Json, place: str) -> dict[str, Any]:
    """Returns the end of an answer as fields of `Message`."""
    word = text_at(info, "finish", place)
    more: dict[str, Any] = {"provider_finish_reason": word} if word else {}
    if word in FINISH:
        more["finish_reason"] = FINISH[word]
    if info.get("error") is None:
        return more
    error, at = an_object_at(info, "error", place), f"{place}.error"
    name, data = text_of(error, "name", at), an_object_at(error, "data", at)
    if name == ABORTED:
        return {**more, "status": MessageStatus.INTERRUPTED, "finish_reason": FinishReason.ABORTED}
    failure = Failure("FAILED_ELSEWHERE", text_at(data, "message", f"{at}.data"), {"reason": name})
    return {**more, "status": MessageStatus.FAILED, "finish_reason": FinishReason.ERROR, "failure": failure}


def _usage(info: Json, place: str) -> Usage | None:
    """Returns the tokens of an answer; None when all are 0, which OpenCode writes when it does not know them."""
    tokens, at = an_object_at(info, "tokens", place), f"{place}.tokens"
    cache = an_object_at(tokens, "cache", at)
    found = Usage(
        input_tokens=_count(tokens, "input", at),
        output_tokens=_count(tokens, "output", at),
        reasoning_tokens=_count(tokens, "reasoning", at),
        cache_read_tokens=_count(cache, "read", f"{at}.cache"),
        cache_write_tokens=_count(cache, "write", f"{at}.cache"),
    )
    return found if found.prompt_total or found.generated_total else None


def _count(value: Json, key: str, place: str) -> int:
    found = number_at(value, key, place) or 0
    if not 0 <= found <= MAX_WHOLE_NUMBER:
        refuse(f"{place}.{key}", "must be a count")
    return int(found)


def _cost(info: Json, place: str) -> int | None:
    """Returns the cost of an answer; None for 0, which OpenCode writes when it does not know the price."""
    cost = number_at(info, "cost", place) or 0
    if not 0 <= cost <= MAX_USD:
        refuse(f"{place}.cost", f"must be an amount in USD, at most {MAX_USD}")
    return round(Decimal(repr(cost)) * PICO_USD) or None


def _taken_back(info: Json, conversation: ConversationBuilder) -> str:
    """Returns the first message that was taken back; "" for none."""
    revert = an_object_at(info, "revert", "info")
    if text_at(revert, "partID", "info.revert"):
        conversation.problem(
            "NO_PLACE", "Only a part of a message was taken back; the complete message is kept.", "info.revert"
        )
        return ""
    return id_at(revert, "messageID", "info.revert")


def _directory(info: Json, conversation: ConversationBuilder) -> str:
    found = text_at(info, "directory", "info")
    if found == "/":
        return ""  # OpenCode's directory outside a project
    if found and (not PurePosixPath(found).is_absolute() or ".." in found or len(found) > 4096 or "\0" in found):
        conversation.problem("NO_PLACE", "Left out: a directory that is not an absolute path here.", "info.directory")
        return ""
    return found
