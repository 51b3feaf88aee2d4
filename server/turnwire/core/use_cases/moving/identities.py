"""The ids that an imported session gets: its own, or some that are the same at every import."""

import hashlib

import msgspec

from turnwire.core.intake.languages import language_of
from turnwire.domain.conversation.messages import Branch, File, Message, Origin, Part, Text, ToolResult, ToolUse
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn


class Identities:
    """Names everything in one session for one tenant. Pure, so that it may run on any thread."""

    def __init__(self, tenant: str, format_name: str, session_id: str, *, keeps: bool, is_own: bool) -> None:
        """Args:
        tenant: Who gets the session.
        format_name: The format of its archive.
        session_id: The session in the archive.
        keeps: Whether ids stay.
        is_own: Whether the archive is one of Turnwire, whose copies say what they are copies of.
        """
        self._tenant = tenant
        self._format = format_name
        self._source = session_id
        self._keeps = keeps
        self._is_own = is_own
        self.session_id = self._named("ses", session_id)

    def session(self, session: Session) -> Session:
        """Returns the session as the tenant gets it."""
        origin = session.origin if self._is_own else Origin(system=self._format, session_id=self._source)
        return msgspec.structs.replace(
            session,
            session_id=self.session_id,
            tenant=self._tenant,
            revision=1,
            queue_revision=0,
            head_sequence=0,
            origin=origin,
        )

    def turn(self, turn: Turn) -> Turn:
        """Returns a turn. Nobody of this tenant has sent its message."""
        return msgspec.structs.replace(
            turn,
            turn_id=self._named("trn", turn.turn_id),
            session_id=self.session_id,
            tenant=self._tenant,
            subject="",
            user_message_id=self._named("msg", turn.user_message_id),
            aimed_at_turn_id=self._named("trn", turn.aimed_at_turn_id),
            merged_into_turn_id=self._named("trn", turn.merged_into_turn_id),
            ended_by_message_id=self._named("msg", turn.ended_by_message_id),
            replaces_turn_id=self._named("trn", turn.replaces_turn_id),
            regenerates=self._named("msg", turn.regenerates),
            traceparent="",
            start_sequence=0,
            end_sequence=0,
        )

    def message(self, message: Message, available: frozenset[str] | set[str]) -> Message:
        """Returns a message. A line of text stands in for each file that is not among the available ones."""
        compaction = message.compaction
        if compaction is not None:
            through = self._named("msg", compaction.through_message_id)
            compaction = msgspec.structs.replace(compaction, through_message_id=through)
        return msgspec.structs.replace(
            message,
            message_id=self._named("msg", message.message_id),
            session_id=self.session_id,
            turn_id=self._named("trn", message.turn_id),
            answers_message_id=self._named("msg", message.answers_message_id),
            previous_message_id="",
            parts=tuple(self._part(part, available) for part in message.parts),
            compaction=compaction,
        )

    def branch(self, branch: Branch | None) -> Branch | None:
        """Returns where a message belongs that is off the path; None for others."""
        if branch is None:
            return None
        return Branch(
            previous_message_id=self._named("msg", branch.previous_message_id),
            turn_id=self._named("trn", branch.turn_id),
        )

    def _part(self, part: Part, available: frozenset[str] | set[str]) -> Part:
        content = part.content
        if isinstance(content, ToolResult):
            content = msgspec.structs.replace(content, tool_call_id=self._named("prt", content.tool_call_id))
        elif isinstance(content, File) and content.sha256 not in available:
            content = Text(f"[{content.filename or content.path or 'a file'}, {content.mime}: not in the archive]")
        elif isinstance(content, File) and not self._is_own:
            content = _with_language(content)
        elif isinstance(content, ToolUse):
            content = self._call(content, available)
        copied_id = part.first_id if self._is_own and not self._keeps else part.copied_id
        return msgspec.structs.replace(
            part, part_id=self._named("prt", part.part_id), copied_id=copied_id, content=content
        )

    def _call(self, content: ToolUse, available: frozenset[str] | set[str]) -> ToolUse:
        if missing_in(content, available):
            kept = content.full_output if content.full_output and content.full_output.sha256 in available else None
            files = tuple(file for file in content.files if file.sha256 in available)
            content = msgspec.structs.replace(content, files=files, full_output=kept)
        if self._is_own or not content.files:
            return content
        return msgspec.structs.replace(content, files=tuple(map(_with_language, content.files)))

    def _named(self, prefix: str, source_id: str) -> str:
        if self._keeps or not source_id:
            return source_id
        words = (self._tenant, self._format, self._source, prefix, source_id)
        return f"{prefix}_{hashlib.sha256(chr(0).join(words).encode()).hexdigest()[:32]}"


def _with_language(file: File) -> File:
    """Returns a file as a caller's would be stored: other systems do not say the language."""
    return file if file.language else msgspec.structs.replace(file, language=language_of(file.filename))


def missing_in(call: ToolUse, available: frozenset[str] | set[str]) -> list[File]:
    """Returns the files of a result that are not among the available ones."""
    return [file for file in call.stored_files() if file.sha256 not in available]
