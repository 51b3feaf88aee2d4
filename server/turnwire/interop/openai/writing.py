"""Writes conversations in OpenAI's chat form, with one line for each session.

A line is `{"id", "title", "created", "messages"}`. What the form cannot express is left out: reasoning and what only a
provider understands, host messages, messages that were taken back, summaries (the messages they cover are written),
files of answers and of results, turns, times of messages, models, usage and cost. A failed call has its error as
output.
"""

import base64
import json
from typing import Any

from turnwire.domain.archive.records import ArchivedFile, ArchivedMessage, ArchivedSession, Record, SessionEnd
from turnwire.domain.conversation.messages import (
    File,
    Message,
    MessageType,
    Refusal,
    Text,
    ToolResult,
    ToolUse,
)
from turnwire.domain.conversation.sessions import Session
from turnwire.interop.forms import Json

_AUDIO = {"audio/wav": "wav", "audio/mpeg": "mp3"}


class OpenAIWriter:
    """Writes JSON Lines. Keeps the files of one session, because a later message may refer to each of them again."""

    mime = "application/jsonl"

    def __init__(self) -> None:
        """Starts an archive."""
        self._files: dict[str, bytes] = {}
        self._first = True

    def write(self, record: Record) -> bytes:
        """As `ArchiveWriter.write`."""
        match record:
            case ArchivedSession(session):
                self._first = True
                self._files.clear()
                return _dumped(_head(session))[:-1] + b',"messages":['
            case ArchivedFile(sha256, content):
                self._files[sha256] = content
            case ArchivedMessage(message, hidden=False) if message.compaction is None:
                return b"".join(self._separated(written) for written in self._messages(message))
            case SessionEnd():
                self._files.clear()
                return b"]}\n"
        return b""

    def end(self) -> bytes:
        """Returns nothing: a line ends with its session."""
        return b""

    def _separated(self, value: Json) -> bytes:
        first, self._first = self._first, False
        return _dumped(value) if first else b"," + _dumped(value)

    def _messages(self, message: Message) -> list[Json]:
        match message.type:
            case MessageType.SYSTEM:
                return [{"role": "system", "content": _joined(self._parts(message, Text))}]
            case MessageType.USER:
                name = {"name": message.sender_name} if message.sender_name else {}
                return [{"role": "user", "content": _joined(self._parts(message, Text | File)), **name}]
            case MessageType.ASSISTANT:
                return self._answer(message)
            case MessageType.TOOL_RESULT:
                results = [part.content for part in message.parts if isinstance(part.content, ToolResult)]
                return [_result(result.call_id or result.tool_call_id, result.output) for result in results]
        return []

    def _answer(self, message: Message) -> list[Json]:
        calls = [(use.call_id or part.part_id, use) for part, use in message.tool_calls()]
        parts = self._parts(message, Text | Refusal)
        if not calls and not parts:
            return []
        written: Json = {"role": "assistant", "content": _joined(parts) if parts else None}
        if calls:
            written["tool_calls"] = [_call(call_id, use) for call_id, use in calls]
        return [written, *(_result(call_id, _output(use)) for call_id, use in calls if use.status.settled)]

    def _parts(self, message: Message, kinds: Any) -> list[Json]:
        contents = (part.content for part in message.parts if isinstance(part.content, kinds))
        return [written for content in contents if (written := self._part(content))]

    def _part(self, content: Text | Refusal | File) -> Json | None:
        match content:
            case Text(text):
                return {"type": "text", "text": text}
            case Refusal(text):
                return {"type": "refusal", "refusal": text}
        if content.sha256 not in self._files:
            return None
        data = base64.b64encode(self._files[content.sha256]).decode()
        if content.mime in _AUDIO:
            return {"type": "input_audio", "input_audio": {"data": data, "format": _AUDIO[content.mime]}}
        url = f"data:{content.mime};base64,{data}"
        if content.mime.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": url}}
        return {"type": "file", "file": {"filename": content.filename, "file_data": url}}


def _head(session: Session) -> Json:
    seconds = session.created_at.timestamp()
    title = {"title": session.title} if session.title else {}
    return {"id": session.session_id, **title, "created": int(seconds) if seconds.is_integer() else seconds}


def _joined(parts: list[Json]) -> str | list[Json]:
    """Returns a single text as a text, all other parts as an array."""
    if not parts:
        return ""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _call(call_id: str, use: ToolUse) -> Json:
    return {"id": call_id, "type": "function", "function": {"name": use.name, "arguments": use.input_json}}


def _result(call_id: str, output: str) -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": output}


def _output(use: ToolUse) -> str:
    """Returns what a model reads of a settled call: its output, or the reason of its failure."""
    return use.output if use.output is not None else use.error or ""


def _dumped(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
