"""The ids of an imported session: its own, or new ones that cannot be predicted."""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from turnwire.core.intake.contents import language_of
from turnwire.domain.archive.records import ArchivedMessage, ArchivedSession, ArchivedTurn, ImportProblem, Record
from turnwire.domain.conversation.messages import Branch, File, Message, Origin, Part, Text, ToolResult, ToolUse
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.ids import IdMaker
from turnwire.ports.moving.sessions import SessionNames

DERIVED_IDS = 4
"""Ids that a session of an archive may get, one after the other. Somebody else can have one only who saw it before, in
an export for instance, and took it when its session was deleted."""


class Source(Struct, frozen=True):
    """A session of an archive that a tenant imports."""

    tenant: str
    format: str
    session_id: str
    is_own: bool
    """Whether the archive is one of Turnwire, whose ids may stay, and whose copies say what they are copies of."""

    def candidates(self, key: bytes, new_id: IdMaker) -> Iterator["Identities"]:
        """Yields ids for a new session, the best first: the next ones are for when one of those before is taken.

        Args:
            key: The server's key, without which no id can be computed. All but the last ones are the same at every
                import.
            new_id: Makes the last ones.
        """
        if self.is_own:
            yield Identities(self, self.session_id, None)
        yield from self._derived(key)
        yield Identities(self, new_id("ses"), secrets.token_bytes(32))

    def imported_as(self, key: bytes, sessions: Sequence[Session]) -> "Identities | None":
        """Returns the ids under which the tenant has the session already; None when it has not.

        Args:
            key: That of `candidates`.
            sessions: Those of the tenant that have one of `possible_ids`.
        """
        found = {session.session_id: session for session in sessions}
        for one in self._known(key):
            # an archive of Turnwire may have had the former id of something else
            if one.session_id in found and (self.is_own or found[one.session_id].origin == self.origin):
                return one
        return None

    def possible_ids(self, key: bytes) -> tuple[str, ...]:
        """Returns all ids that an import can have given the session, the likeliest first."""
        return tuple(one.session_id for one in self._known(key))

    def _known(self, key: bytes) -> Iterator["Identities"]:
        if self.is_own:
            yield Identities(self, self.session_id, None)
        yield from self._derived(key)
        # versions before 0.1.0 gave this one, which anybody could compute
        words = self.tenant, self.format, self.session_id, "ses", self.session_id
        yield Identities(self, f"ses_{hashlib.sha256(chr(0).join(words).encode()).hexdigest()[:32]}", None)

    def _derived(self, key: bytes) -> Iterator["Identities"]:
        for attempt in range(DERIVED_IDS):
            inner = hmac.digest(key, f"attempt {attempt}".encode(), "sha256") if attempt else key
            yield Identities(self, _derived(key, self, "ses", str(attempt)), inner)

    @property
    def origin(self) -> Origin:
        """The origin of a session from another system, in its own words."""
        return Origin(system=self.format, session_id=self.session_id)


class Identities:
    """Names everything in one session for one tenant. Pure, so that it may run on any thread."""

    def __init__(self, source: Source, session_id: str, key: bytes | None) -> None:
        """Use `Source`."""
        self._source = source
        self._is_own = source.is_own
        self._key = key
        self.session_id = session_id
        """The one that the session gets."""

    def names(self, records: Iterable[Record | ImportProblem]) -> SessionNames:
        """Returns the ids that are stored with some records of the session, and must be free for it."""
        every = list(records)
        begins = any(isinstance(one, ArchivedSession) for one in every)
        messages = [one.message for one in every if isinstance(one, ArchivedMessage)]
        parts = [part for message in messages for part in message.parts if isinstance(part.content, ToolUse)]
        return SessionNames(
            self.session_id if begins else "",
            turn_ids=tuple(self._named("trn", one.turn.turn_id) for one in every if isinstance(one, ArchivedTurn)),
            message_ids=tuple(self._named("msg", message.message_id) for message in messages),
            call_ids=tuple(self._named("prt", part.part_id) for part in parts),
        )

    def session(self, session: Session) -> Session:
        """Returns the session as the tenant gets it."""
        origin = session.origin if self._is_own else self._source.origin
        return msgspec.structs.replace(
            session,
            session_id=self.session_id,
            tenant=self._source.tenant,
            revision=1,
            queue_revision=0,
            head_sequence=0,
            origin=origin,
        )

    def turn(self, turn: Turn) -> Turn:
        """Returns a turn. No subject of this tenant has sent its message."""
        return msgspec.structs.replace(
            turn,
            turn_id=self._named("trn", turn.turn_id),
            session_id=self.session_id,
            tenant=self._source.tenant,
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
        copied_id = part.first_id if self._is_own and self._key else part.copied_id
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
        return _derived(self._key, self._source, prefix, source_id) if self._key and source_id else source_id


def _derived(key: bytes, source: Source, prefix: str, name: str) -> str:
    # JSON, so that no two lists of words are one text
    words = msgspec.json.encode(("import", source.tenant, source.format, source.session_id, prefix, name))
    return f"{prefix}_{hmac.digest(key, words, 'sha256').hex()[:32]}"


def _with_language(file: File) -> File:
    """Returns a file as a caller's would be stored: other systems do not say the language."""
    return file if file.language else msgspec.structs.replace(file, language=language_of(file.filename))


def missing_in(call: ToolUse, available: frozenset[str] | set[str]) -> list[File]:
    """Returns the files of a result that are not among the available ones."""
    return [file for file in call.stored_files() if file.sha256 not in available]
