"""Errors of requests: what they ask for is invalid, missing, or in another state."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import ClassVar, Self

from turnwire.domain.errors.base import DomainError, FieldViolation, limit_facts


class InvalidRequest(DomainError):
    """A field of the request is invalid; nothing was stored."""

    reason = "INVALID_REQUEST"

    def __init__(self, *violations: FieldViolation, metadata: Mapping[str, str] | None = None) -> None:
        """Takes one violation per invalid field, at least one. Metadata field, and limitValue if it is over a limit."""
        text = "; ".join(f"{v.field}: {v.description}" for v in violations)
        first = violations[0]
        over = {} if first.limit is None else {"limitValue": str(first.limit)}
        super().__init__(text, {"field": first.field, **over, **(metadata or {})})
        self.violations = violations

    @classmethod
    def of(cls, field: str, description: str, reason: str = "INVALID", **metadata: str) -> Self:
        """Creates the error for a single field; keyword arguments become metadata."""
        return cls(FieldViolation(field, description, reason), metadata=metadata)

    def within(self, field: str) -> Self:
        """Returns the same error with its field paths prefixed by a field of the request."""
        moved = [replace(v, field=f"{field}.{v.field}") for v in self.violations]
        metadata = {key: value for key, value in self.metadata.items() if key != "field"}
        return type(self)(*moved, metadata=metadata)


class RequestIdReused(InvalidRequest):
    """The request_id was used before with different content."""

    reason = "REQUEST_ID_REUSED"


class UnknownModel(InvalidRequest):
    """No such provider, or the provider does not offer the model."""

    reason = "MODEL_UNKNOWN"


class MessageTooLarge(InvalidRequest):
    """The message or one of its files is over the limit; metadata maxBytes, actualBytes, limit and limitValue."""

    reason = "MESSAGE_TOO_LARGE"

    @classmethod
    def over(cls, limit: str, max_bytes: int, field: str, actual_bytes: int) -> Self:
        """Creates the error.

        Args:
            limit: The name of the limit in docs/limits.md, such as "files.max_bytes".
            max_bytes: What the limit is.
            field: Path in the request.
            actual_bytes: How many bytes are there, as far as they were counted.
        """
        text = f"holds {actual_bytes} bytes, at most {max_bytes} are allowed"
        sizes = {"maxBytes": str(max_bytes), "actualBytes": str(actual_bytes)}
        return cls.of(field, text, "TOO_LARGE", **sizes, **limit_facts(limit, max_bytes))


class ArchiveInvalid(InvalidRequest):
    """What is to be imported is no archive of that format, or cut, damaged, of a newer version or over a bound.

    Metadata: line and place, where they are known.
    """

    reason = "ARCHIVE_INVALID"

    @classmethod
    def at(cls, description: str, *, line: int = 0, place: str = "", **metadata: str) -> Self:
        """Creates the error.

        Args:
            description: What is wrong there.
            line: In the archive, from 1; 0 where the format has no lines.
            place: Path of the value, such as "mapping.4f.message.content"; "" for the whole line or archive.
            metadata: More facts.
        """
        where = [f"line {line}" if line else "", place]
        text = ": ".join([*filter(None, where), description])
        known = {name: value for name, value in (("line", str(line or "")), ("place", place)) if value}
        return cls.of("upload_id", text, **known, **metadata)


class NotFound(DomainError):
    """A named thing does not exist."""

    resource_type: ClassVar[str] = "resource"

    def __init__(self, resource_id: str) -> None:
        """Takes the requested id."""
        super().__init__(f"{self.resource_type} {resource_id!r} was not found", {"resourceId": resource_id})
        self.resource_id = resource_id


class SessionNotFound(NotFound):
    """No such session."""

    reason = "SESSION_NOT_FOUND"
    resource_type = "session"


class MessageNotFound(NotFound):
    """No such message in that session."""

    reason = "MESSAGE_NOT_FOUND"
    resource_type = "message"


class TurnNotFound(NotFound):
    """No such turn in that session."""

    reason = "TURN_NOT_FOUND"
    resource_type = "turn"


class ToolCallNotFound(NotFound):
    """No such tool call in that session."""

    reason = "TOOL_CALL_NOT_FOUND"
    resource_type = "tool call"


class PermissionRequestNotFound(NotFound):
    """No such permission request in that session."""

    reason = "PERMISSION_REQUEST_NOT_FOUND"
    resource_type = "permission request"


class QuestionNotFound(NotFound):
    """No such question in that session."""

    reason = "QUESTION_NOT_FOUND"
    resource_type = "question"


class StoredFileNotFound(NotFound):
    """No message of that session refers to such a file."""

    reason = "FILE_NOT_FOUND"
    resource_type = "file"


class UploadNotFound(NotFound):
    """No such upload: it never was, was used up or deleted, or has expired."""

    reason = "UPLOAD_NOT_FOUND"
    resource_type = "upload"


class WrongState(DomainError):
    """The request is valid, but not in the current state of its subject."""

    def __init__(self, message: str, subject: str) -> None:
        """Takes the sentence and the id of the subject."""
        super().__init__(message, {"subject": subject})
        self.subject = subject


class TurnInProgress(WrongState):
    """A turn is running and the caller asked not to wait."""

    reason = "TURN_IN_PROGRESS"


class TurnNotRunning(WrongState):
    """The turn that the caller expects to run does not run."""

    reason = "TURN_NOT_RUNNING"


class ImportRunning(WrongState):
    """The tenant may have one import at a time."""

    reason = "IMPORT_RUNNING"


class TurnExists(WrongState):
    """The message has an answer already, or a turn that will answer it."""

    reason = "TURN_EXISTS"


class ToolCallsOpen(WrongState):
    """Calls of the answer have no result yet; metadata toolCallIds."""

    reason = "TOOL_CALLS_OPEN"

    def __init__(self, message_id: str, tool_call_ids: Sequence[str]) -> None:
        """Takes the answer and its open calls; the first ten are named."""
        named = ", ".join(tool_call_ids[:10])
        more = f" and {len(tool_call_ids) - 10} more" if len(tool_call_ids) > 10 else ""
        super().__init__(f"tool calls of message {message_id!r} have no result: {named}{more}", message_id)
        self.metadata["toolCallIds"] = ",".join(tool_call_ids[:10])


class MessageNotWaiting(WrongState):
    """The message does not wait: its turn began, it was removed, or it never had to wait."""

    reason = "MESSAGE_NOT_WAITING"


class NothingToRestore(WrongState):
    """No messages are hidden, or a turn began since they were."""

    reason = "NOTHING_TO_RESTORE"


class ToolCallAlreadySettled(WrongState):
    """The tool call has another result already, or its turn ended."""

    reason = "TOOL_CALL_ALREADY_SETTLED"


class ToolCallNotReady(WrongState):
    """The tool call cannot take a result yet: it is being written, or waits for a permission."""

    reason = "TOOL_CALL_NOT_READY"


class LeaseLost(WrongState):
    """The lease of a tool call has ended; metadata leaseId, and holder when somebody else holds the call now."""

    reason = "LEASE_LOST"

    def __init__(self, tool_call_id: str, lease_id: str, holder: str = "") -> None:
        """Takes the call, the lease that was given, and who holds the call now; "" when nobody does."""
        now = f"; {holder!r} has claimed it" if holder else ""
        super().__init__(f"lease {lease_id!r} of tool call {tool_call_id!r} has ended{now}", tool_call_id)
        self.metadata["leaseId"] = lease_id
        if holder:
            self.metadata["holder"] = holder


class LeaseHeld(WrongState):
    """Another client has claimed the tool call; metadata holder."""

    reason = "LEASE_HELD"

    def __init__(self, tool_call_id: str, holder: str, left: timedelta) -> None:
        """Takes the call, who holds it, and how long the lease lasts unless it is renewed."""
        super().__init__(f"{holder!r} has claimed tool call {tool_call_id!r}", tool_call_id)
        self.metadata["holder"] = holder
        self.retry_after = left


class PermissionAlreadyAnswered(WrongState):
    """The permission request has another answer already."""

    reason = "PERMISSION_ALREADY_ANSWERED"


class QuestionAlreadyAnswered(WrongState):
    """The question has another answer already, or its turn has ended."""

    reason = "QUESTION_ALREADY_ANSWERED"


class PositionUnavailable(DomainError):
    """A stream cannot start at the requested position: of the log, or of an archive."""

    def __init__(
        self,
        message: str,
        asked: int | None = None,
        earliest: int | None = None,
        latest: int | None = None,
        **metadata: str,
    ) -> None:
        """Takes the sentence and, if known, the requested sequence, the last one no longer kept, and the newest."""
        places = {"askedSequence": asked, "earliestSequence": earliest, "latestSequence": latest}
        known = {name: str(place) for name, place in places.items() if place is not None}
        super().__init__(message, {**known, **metadata})


class EventsCompacted(PositionUnavailable):
    """The events after that position are no longer kept."""

    reason = "EVENTS_COMPACTED"


class SequenceInFuture(PositionUnavailable):
    """The position is after the newest event."""

    reason = "SEQUENCE_IN_FUTURE"


class UploadOffsetOutOfRange(DomainError):
    """Bytes of an upload would be missing before those that were sent, or would follow its last ones."""

    reason = "UPLOAD_OFFSET_OUT_OF_RANGE"

    def __init__(self, asked: int, received: int, *, is_complete: bool = False) -> None:
        """Takes the offset of the request, how many bytes the upload has, and whether its last ones have come."""
        text = f"the upload is complete with {received} bytes" if is_complete else f"go on at offset {received}"
        super().__init__(
            f"{text}, not with bytes at offset {asked}", {"askedOffset": str(asked), "receivedBytes": str(received)}
        )


class ExportChanged(PositionUnavailable):
    """An archive that is asked for from an offset on begins with other bytes now."""

    reason = "EXPORT_CHANGED"


class StaleVersion(DomainError):
    """Another change came first; metadata currentRevision."""

    reason = "STALE_VERSION"


class AnswerTooLarge(DomainError):
    """A single entry of a list is larger than the largest answer; metadata maxBytes, actualBytes, limit, limitValue."""

    reason = "ANSWER_TOO_LARGE"

    def __init__(self, actual_bytes: int, max_bytes: int) -> None:
        """Takes the size of the entry and the limit, in bytes."""
        super().__init__(
            f"one entry of the list has {actual_bytes} bytes, at most {max_bytes} are allowed; ask for pages",
            {
                "maxBytes": str(max_bytes),
                "actualBytes": str(actual_bytes),
                **limit_facts("server.max_list_bytes", max_bytes),
            },
        )


class ConversationTooLarge(AnswerTooLarge):
    """A conversation is larger than the memory that one may have; nobody can send it to a model or copy it at once."""

    def __init__(self, actual_bytes: int, max_bytes: int, limit: str = "MAX_CONVERSATION_BYTES") -> None:
        """Takes the size of the conversation, as far as it was counted, and the limit, in bytes, with its name."""
        DomainError.__init__(
            self,
            f"the conversation has more than {actual_bytes - 1} bytes, at most {max_bytes} can be read at once",
            {
                "maxBytes": str(max_bytes),
                "actualBytes": str(actual_bytes),
                **limit_facts(limit, max_bytes),
            },
        )
