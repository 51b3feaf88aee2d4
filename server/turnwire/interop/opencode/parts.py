"""Parts of OpenCode's messages."""

import json
from datetime import datetime

from turnwire.domain.conversation.limits import MAX_METADATA_BYTES
from turnwire.domain.conversation.messages import Reasoning, Text, ToolStatus, ToolUse
from turnwire.interop.archive.attachments import Attachment, from_url
from turnwire.interop.archive.bounds import ArchiveLimits
from turnwire.interop.archive.conversation import ConversationBuilder, ImportedCall, ImportedMessage
from turnwire.interop.archive.values import (
    an_object_at,
    compact,
    flag_at,
    id_at,
    objects,
    seconds_at,
    text_at,
)
from turnwire.interop.forms import Json, refuse, text_of

SILENT = frozenset({"step-start", "step-finish"})
"""Types that only divide a message: their counts are in the message, and their snapshots mean nothing elsewhere."""

LEFT_OUT = frozenset({"snapshot", "patch", "agent", "retry", "compaction"})
"""Types that cannot be expressed here."""

STATES = {
    "pending": ToolStatus.PENDING,
    "running": ToolStatus.RUNNING,
    "completed": ToolStatus.SUCCESS,
    "error": ToolStatus.ERROR,
}
"""Statuses of calls. Calls that have not ended get an error, because an archive will never end them."""


class Parts:
    """Reads the parts of one conversation."""

    def __init__(self, conversation: ConversationBuilder, bounds: ArchiveLimits) -> None:
        """Takes the conversation that gets the problems, and the limits on files."""
        self._conversation = conversation
        self._most = bounds.file_bytes

    def fill(self, draft: ImportedMessage, message: Json, place: str) -> None:
        """Adds the parts of a message.

        Raises:
            InvalidRequest: a value has another type than in OpenCode's exports.
        """
        for part, at in objects(message, "parts", place):
            found = self._part(draft, part, at)
            if found is not None:
                draft.part_ids[len(draft.parts)] = id_at(part, "id", at)
                draft.parts.append(found)

    def _part(
        self, draft: ImportedMessage, part: Json, place: str
    ) -> Text | Reasoning | Attachment | ImportedCall | None:
        match text_of(part, "type", place):
            case "text":
                text = text_at(part, "text", place)
                if text and flag_at(part, "ignored", place):
                    self._conversation.count("IGNORED_TEXT", "Texts that no model got, and now gets", place)
                return Text(text) if text else None
            case "reasoning":
                return self._reasoning(draft, part, place)
            case "tool":
                return self._call(part, place, draft.at)
            case "file":
                return self._file(part, place)
            case "subtask":
                self._conversation.count("SUBTASK", "Tasks for other agents, which became text", place)
                text = text_at(part, "prompt", place)
                return Text(text) if text else None
            case kind if kind in LEFT_OUT:
                self._conversation.count("NO_PLACE", f"Left out: parts of type {kind}", place)
            case kind if kind not in SILENT:
                self._conversation.count("UNKNOWN_CONTENT", "Left out: parts of a type that is not known", place)
        return None

    def _reasoning(self, draft: ImportedMessage, part: Json, place: str) -> Reasoning | None:
        text, metadata = text_at(part, "text", place), an_object_at(part, "metadata", place)
        sealed = metadata.get("anthropic")
        signature = sealed.get("signature") if isinstance(sealed, dict) else None
        if isinstance(signature, str) and signature and draft.model_run is not None:
            state = {"api": "anthropic", "model": draft.model_run.model_requested, "signature": signature}
            draft.states[len(draft.parts)] = json.dumps(state, ensure_ascii=False, separators=(",", ":"))
            return Reasoning(text)
        if metadata:
            self._conversation.count(
                "SEALED_REASONING", "Left out: what reasoning was sealed with", f"{place}.metadata"
            )
        return Reasoning(text) if text else None

    def _file(self, part: Json, place: str) -> Attachment:
        return from_url(
            text_of(part, "url", place),
            self._most,
            mime=text_at(part, "mime", place),
            filename=text_at(part, "filename", place),
            place=place,
        )

    def _call(self, part: Json, place: str, at: datetime) -> ImportedCall:
        state, where = an_object_at(part, "state", place), f"{place}.state"
        status = text_of(state, "status", where)
        if status not in STATES:
            refuse(f"{where}.status", f"must be one of {', '.join(STATES)}")
        time = an_object_at(state, "time", where)
        given = an_object_at(state, "input", where)
        raw = text_at(state, "raw", where)
        title, metadata = text_at(state, "title", where), an_object_at(state, "metadata", where)
        facts = {**({"title": title} if title else {}), **({"metadata": metadata} if metadata else {})}
        facts_json = compact(facts) if facts else ""
        if len(facts_json.encode()) > MAX_METADATA_BYTES:
            self._conversation.count(
                "NO_PLACE", f"Left out: facts of more than {MAX_METADATA_BYTES} bytes", f"{where}.metadata"
            )
            facts_json = ""
        use = ToolUse(
            name=text_of(part, "tool", place),
            call_id=id_at(part, "callID", place),
            input_json=raw if raw and not given else compact(given),
            status=STATES[status],
            output=text_at(state, "output", where) if status == "completed" else None,
            error=text_at(state, "error", where) if status == "error" else None,
            metadata_json=facts_json,
            started_at=seconds_at(time, "start", f"{where}.time", 1000) or at,
            finished_at=seconds_at(time, "end", f"{where}.time", 1000) or at,
        )
        return ImportedCall(use, files=[self._file(item, spot) for item, spot in objects(state, "attachments", where)])
