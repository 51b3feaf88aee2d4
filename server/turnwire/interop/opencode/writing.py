"""Writes sessions as OpenCode exports them, with one line for each.

What OpenCode cannot express is left out: messages of other types than user and assistant, content that only a provider
understands, senders, turns, and settings except title, directory and system prompt. A refusal is written as text, an
error of an answer as `UnknownError`, arguments that are not a JSON object as the argument `input`. What was taken back
is `info.revert`.
"""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from turnwire.domain.archive.records import ArchivedFile, ArchivedMessage, ArchivedSession, Record, SessionEnd
from turnwire.domain.conversation.messages import (
    File,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    ModelRef,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.money import PICO_USD, Usage
from turnwire.interop.forms import Json
from turnwire.interop.opencode.reading import ABORTED, FINISH

VERSION = "1.0.0"
"""The first version of OpenCode with this form."""

_DEPTH = 80
"""Maximum levels of arguments and metadata: a document may have 100."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KNOWN_WORDS = {*FINISH, "other", "unknown"}
_WORDS = {reason: word for word, reason in FINISH.items()}


class OpenCodeWriter:
    """Writes JSON Lines. Keeps the files of one session, because a later message may refer to each of them again."""

    mime = "application/jsonl"

    def __init__(self) -> None:
        """Starts an archive."""
        self._files: dict[str, bytes] = {}
        self._session: Session | None = None
        self._first = True
        self._asked = ""
        self._taken_back = ""
        self._model = ModelRef("unknown", "unknown")

    def write(self, record: Record) -> bytes:
        """As `ArchiveWriter.write`."""
        match record:
            case ArchivedSession(session):
                self._session, self._first, self._asked, self._taken_back = session, True, "", ""
                self._model = session.model or ModelRef("unknown", "unknown")
                self._files.clear()
                return b'{"messages":['
            case ArchivedFile(sha256, content):
                self._files[sha256] = content
            case ArchivedMessage(message, hidden, None) if self._session is not None:
                return self._message(message, hidden, self._session)
            case SessionEnd() if self._session is not None:
                self._files.clear()
                return b'],"info":' + _dumped(_info(self._session, self._taken_back)) + b"}\n"
        return b""

    def end(self) -> bytes:
        """Returns nothing: a line ends with its session."""
        return b""

    def _message(self, message: Message, hidden: bool, session: Session) -> bytes:
        if message.type not in (MessageType.USER, MessageType.ASSISTANT):
            return b""
        message_id = _id("msg", message.message_id)
        if hidden:
            self._taken_back = self._taken_back or message_id
        base = {"id": message_id, "sessionID": _id("ses", session.session_id)}
        if message.type is MessageType.USER:
            self._asked = message_id
            info = base | self._question(message, session)
        else:
            info = base | self._answer(message, session)
        parts = [written for part in message.parts if (written := self._part(part, message, base))]
        text = _dumped({"info": info, "parts": parts})
        first, self._first = self._first, False
        return text if first else b"," + text

    def _question(self, message: Message, session: Session) -> Json:
        return {
            "role": "user",
            "time": {"created": _ms(message.created_at)},
            "agent": session.agent or "build",
            "model": {"providerID": self._model.provider_id, "modelID": self._model.model_id},
            **({"system": session.system} if session.system else {}),
        }

    def _answer(self, message: Message, session: Session) -> Json:
        if (run := message.model_run) is not None:
            self._model = ModelRef(run.provider_id, run.model_requested)
        word = message.provider_finish_reason
        if word not in _KNOWN_WORDS:
            word = _WORDS.get(message.finish_reason, "") if message.finish_reason else ""
        agent = session.agent or "build"
        return {
            "role": "assistant",
            "time": {"created": _ms(message.created_at), "completed": _ms(message.updated_at)},
            "parentID": self._asked or "msg_none",
            "modelID": self._model.model_id,
            "providerID": self._model.provider_id,
            "mode": agent,
            "agent": agent,
            "path": {"cwd": session.directory or "/", "root": "/"},
            "cost": (message.cost_pico_usd or 0) / PICO_USD,
            "tokens": _tokens(message.usage or Usage()),
            **({"finish": word} if word else {}),
            **_error(message),
        }

    def _part(self, part: Part, message: Message, base: Json) -> Json | None:
        head = {"id": _id("prt", part.part_id), "sessionID": base["sessionID"], "messageID": base["id"]}
        match part.content:
            case Text(text) | Refusal(text):
                return {**head, "type": "text", "text": text}
            case Reasoning(text):
                time = {"start": _ms(message.created_at), "end": _ms(message.updated_at)}
                return {**head, "type": "reasoning", "text": text, "time": time, **_seal(part)}
            case File() as file:
                return self._file(file, head)
            case ToolUse() as use:
                state = self._state(use, message, head)
                return {**head, "type": "tool", "callID": use.call_id or part.part_id, "tool": use.name, "state": state}
        return None

    def _file(self, file: File, head: Json) -> Json | None:
        if file.sha256 not in self._files:
            return None
        data = base64.b64encode(self._files[file.sha256]).decode()
        name = {"filename": file.filename} if file.filename else {}
        return {**head, "type": "file", "mime": file.mime, **name, "url": f"data:{file.mime};base64,{data}"}

    def _state(self, use: ToolUse, message: Message, head: Json) -> Json:
        facts = _object(use.metadata_json)
        start = _ms(use.started_at or message.created_at)
        time = {"start": start, "end": _ms(use.finished_at) if use.finished_at else start}
        given = _arguments(use.input_json)
        metadata = facts.get("metadata") if isinstance(facts.get("metadata"), dict) else {}
        if use.status is ToolStatus.SUCCESS:
            heads = ({**head, "id": f"{head['id']}_{index}"} for index in range(len(use.files)))
            files = [self._file(file, own) for file, own in zip(use.files, heads, strict=True)]
            return {
                "status": "completed",
                "input": given,
                "output": use.output or "",
                "title": facts["title"] if isinstance(facts.get("title"), str) else "",
                "metadata": metadata,
                "time": time,
                **({"attachments": [file for file in files if file]} if any(files) else {}),
            }
        if use.status.settled:
            error = use.error or use.output or ""
            return {"status": "error", "input": given, "error": error, "metadata": metadata, "time": time}
        return {"status": "pending", "input": given, "raw": use.input_json}


def _info(session: Session, taken_back: str) -> Json:
    session_id = _id("ses", session.session_id)
    return {
        "id": session_id,
        "slug": session_id,
        "projectID": "global",
        "directory": session.directory or "/",
        "title": session.title,
        "version": VERSION,
        "time": {
            "created": _ms(session.created_at),
            "updated": _ms(session.updated_at),
            **({} if session.archived_at is None else {"archived": _ms(session.archived_at)}),
        },
        **({"revert": {"messageID": taken_back}} if taken_back else {}),
    }


def _tokens(usage: Usage) -> Json:
    return {
        "input": usage.input_tokens or 0,
        "output": usage.output_tokens or 0,
        "reasoning": usage.reasoning_tokens or 0,
        "cache": {"read": usage.cache_read_tokens or 0, "write": usage.cache_write_tokens or 0},
    }


def _error(message: Message) -> Json:
    if message.failure is not None:
        return {"error": {"name": "UnknownError", "data": {"message": message.failure.message}}}
    if message.status is MessageStatus.INTERRUPTED or message.finish_reason is FinishReason.ABORTED:
        return {"error": {"name": ABORTED, "data": {"message": "aborted"}}}
    return {}


def _seal(part: Part) -> Json:
    state = _object(part.provider_state or "")
    signature = state.get("signature")
    return {"metadata": {"anthropic": {"signature": signature}}} if isinstance(signature, str) else {}


def _arguments(text: str) -> Json:
    found = _object(text)
    return found if found or text.strip() in ("", "{}") else {"input": text}


def _object(text: str) -> Json:
    """Returns the JSON object in a text; {} when it is not an object, or one that readers would reject."""
    try:
        found = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and not _is_deep(found) else {}


def _is_deep(value: object) -> bool:
    """Returns whether a value has more than `_DEPTH` levels."""
    inner: list[Any] = [value]
    for _ in range(_DEPTH):
        inner = [
            item
            for container in inner
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not inner:
            return False
    return True


def _id(prefix: str, found: str) -> str:
    """Returns an id with the prefix that OpenCode requires."""
    return found if found.startswith(prefix) else f"{prefix}_{found}"


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _dumped(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
