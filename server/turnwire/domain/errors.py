"""All errors, as one tree.

    DomainError
    +-- Unauthenticated                 the credentials are missing or wrong
    +-- PermissionDenied                the caller's role does not allow the call
    +-- InvalidRequest                  a field of the request is invalid
    |   +-- RequestIdReused
    |   +-- UnknownModel
    |   +-- MessageTooLarge
    |   +-- ArchiveInvalid
    +-- NotFound
    |   +-- SessionNotFound  MessageNotFound  TurnNotFound  ToolCallNotFound  PermissionRequestNotFound
    |   +-- QuestionNotFound  StoredFileNotFound  UploadNotFound
    +-- WrongState
    |   +-- TurnInProgress  TurnNotRunning  TurnExists  ToolCallsOpen  MessageNotWaiting  NothingToRestore
    |   +-- ImportRunning
    |   +-- ToolCallAlreadySettled  ToolCallNotReady  LeaseLost  LeaseHeld  PermissionAlreadyAnswered
    |   +-- QuestionAlreadyAnswered
    +-- PositionUnavailable
    |   +-- EventsCompacted  SequenceInFuture  ExportChanged
    +-- UploadOffsetOutOfRange
    +-- StaleVersion
    +-- LimitReached
    |   +-- TooManyCalls  RequestTooSlow  MemoryShort
    |   +-- TooManyTurns  TooManyWatchers  TooManySignIns  TooManyUploads  TooManyTransfers  TooManySearches
    +-- SearchTooCostly
    +-- QuotaExceeded
    +-- AnswerTooLarge
    |   +-- ConversationTooLarge
    +-- ProviderError
    |   +-- ProviderRateLimited  ProviderUnavailable  ProviderTimeout  ProviderCredentialsRejected
    |   +-- ProviderRefusedRequest  ProviderContextFull  ProviderStreamCut
    |   +-- ProviderStreamFailed
    |       +-- ProviderAnswerOverLimit
    +-- StorageError
    |   +-- IdTaken  StorageBusy  StorageFull  StorageCorrupt  StorageSchemaTooNew
    +-- ShuttingDown  SessionMoving  OutcomeUnknown

Only `api/wire/status.py` maps them to status codes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar, Self


def limit_facts(limit: str, value: float) -> dict[str, str]:
    """Returns the metadata that every rejection by a limit has.

    Args:
        limit: The name of the limit: a key of the configuration such as "files.max_bytes", or a constant.
        value: The value of the limit.
    """
    return {"limit": limit, "limitValue": str(value) if isinstance(value, int) else f"{value:g}"}


class DomainError(Exception):
    """Base of the tree. Every error has the same four attributes."""

    reason: ClassVar[str] = "INTERNAL"
    """Stable upper-case word; never changed once it has been sent."""

    def __init__(
        self, message: str, metadata: Mapping[str, str] | None = None, retry_after: timedelta | None = None
    ) -> None:
        """Args:
        message: A sentence for people. `metadata` also has every variable part of it.
        metadata: Facts by lowerCamelCase key.
        retry_after: Delay before a retry; None when a retry will not help or the time is unknown.
        """
        super().__init__(message)
        self.message = message
        self.metadata = dict(metadata or {})
        self.retry_after = retry_after


@dataclass(frozen=True)
class FieldViolation:
    """One invalid field."""

    field: str
    """Path in the request, such as `parts[0].file.url`."""
    description: str
    reason: str = "INVALID"
    """Upper-case word for programs."""
    limit: int | None = None
    """The limit that the value exceeds; None when the value is wrong for another reason."""


class Unauthenticated(DomainError):
    """The caller's credentials are missing or not valid. Callers cannot see which check failed."""

    reason = "UNAUTHENTICATED"

    def __init__(self, cause: str, *, missing: bool = False) -> None:
        """Creates the error, which is the same for all wrong credentials.

        Args:
            cause: Which check failed, for the log; never part of the credentials.
            missing: Whether the caller presented no credentials at all.
        """
        text = "this call needs credentials" if missing else "the credentials are not valid"
        super().__init__(f"{text}; GetServerInfo lists the ways to sign in")
        self.cause = cause


class PermissionDenied(DomainError):
    """The caller is known and its role does not allow the call; metadata requiredRole and role."""

    reason = "PERMISSION_DENIED"

    @classmethod
    def of(cls, text: str, role: str, required: str) -> "PermissionDenied":
        """Creates the error for a caller whose role is not the required one."""
        return cls(f"{text}, and the caller is a {role}", {"role": role, "requiredRole": required})


class LimitReached(DomainError):
    """A limit of this server is reached; a later retry may succeed. Metadata limit and limitValue."""

    reason = "CONCURRENCY_LIMIT"
    subject: ClassVar[str] = "server"

    @classmethod
    def of(cls, limit: str, value: float, text: str, retry_after: timedelta | None = None, **facts: str) -> Self:
        """Creates the error.

        Args:
            limit: The name of the limit: a key such as "limits.max_watchers", or a constant.
            value: The value of the limit.
            text: A sentence for people.
            retry_after: Delay before a retry; None where it is unknown, and one second is sent.
            facts: More metadata.
        """
        return cls(text, {**limit_facts(limit, value), **facts}, retry_after)


class TooManyCalls(LimitReached):
    """Too many calls run, or their requests have too many bytes; metadata limit and limitValue."""

    subject = "calls"

    @classmethod
    def at(cls, limit: str, value: int, retry_after: timedelta) -> Self:
        """Creates the error of a limit, by its name and its value."""
        return cls.of(limit, value, f"the server has too many calls: {limit} is {value}", retry_after)


class RequestTooSlow(LimitReached):
    """A request did not arrive in time; metadata limit and limitValue."""

    subject = "request"

    @classmethod
    def at(cls, limit: str, seconds: float) -> Self:
        """Creates the error of a limit, by its name and its value."""
        return cls.of(limit, seconds, f"the request did not arrive within {seconds:g} seconds")


class MemoryShort(LimitReached):
    """The server has no memory for new work; metadata limit and limitValue. Running turns continue."""

    subject = "memory"

    @classmethod
    def at(cls, limit: str, value: int, retry_after: timedelta) -> Self:
        """Creates the error of a limit, by its name and its value."""
        return cls.of(limit, value, "the server is short of memory and takes no new work", retry_after)


class TooManyTurns(LimitReached):
    """Too many turns run or wait."""

    subject = "turns"


class TooManyWatchers(LimitReached):
    """Too many event streams are open."""

    subject = "watchers"


class TooManySignIns(LimitReached):
    """Too many credentials are being checked."""

    subject = "sign-ins"


class TooManyUploads(LimitReached):
    """The tenant has as many uploads as it may have at the same time; metadata also used."""

    subject = "uploads"


class TooManyTransfers(LimitReached):
    """Too many exports or imports run."""

    subject = "transfers"


class TooManySearches(LimitReached):
    """Too many searches run or wait."""

    subject = "searches"


class SearchTooCostly(DomainError):
    """A search took too long and was ended; metadata maxSeconds, limit and limitValue."""

    reason = "SEARCH_TOO_COSTLY"

    def __init__(self, max_seconds: float) -> None:
        """Takes the limit."""
        text = f"the search took more than {max_seconds:g} seconds: use more or rarer words, or a filter"
        super().__init__(text, {"maxSeconds": f"{max_seconds:g}", **limit_facts("MAX_SECONDS", max_seconds)})


class QuotaExceeded(DomainError):
    """A quota of the caller's tenant is used up; metadata quota, limit and used. Nothing was stored."""

    reason = "QUOTA_EXCEEDED"

    def __init__(
        self, message: str, tenant: str, *, quota: str, limit: int, used: int, retry_after: timedelta | None = None
    ) -> None:
        """Args:
        message: A sentence for people.
        tenant: The tenant of the quota.
        quota: Its name.
        limit: The most that the tenant may have or use.
        used: The amount in use, or used; may exceed the limit.
        retry_after: When it is allowed again; None when waiting alone does not help.
        """
        super().__init__(message, {"quota": quota, "limit": str(limit), "used": str(used)}, retry_after)
        self.tenant = tenant


class ShuttingDown(DomainError):
    """The server is stopping."""

    reason = "SERVER_SHUTTING_DOWN"

    def __init__(self) -> None:
        """Suggests a retry after a second: a restart takes about that long."""
        super().__init__("the server is shutting down", retry_after=timedelta(seconds=1))


class SessionMoving(DomainError):
    """No node owns the session at the moment. Nothing was carried out."""

    reason = "SESSION_MOVING"

    def __init__(self) -> None:
        """Suggests a retry after a second: another node has the session by then."""
        super().__init__("the session is moving to another node", retry_after=timedelta(seconds=1))


class OutcomeUnknown(DomainError):
    """The node that carried the call out was lost: its change may or may not be stored."""

    reason = "OUTCOME_UNKNOWN"

    def __init__(self) -> None:
        """Suggests repeating the call, which is carried out once under the same request_id."""
        super().__init__(
            "the connection to the node that carried this out was lost: repeat the call under the same request_id",
            retry_after=timedelta(seconds=1),
        )


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
            limit: The name of the limit, such as "files.max_bytes".
            max_bytes: The limit.
            field: Path in the request.
            actual_bytes: The size, as far as it was counted.
        """
        text = f"has {actual_bytes} bytes, at most {max_bytes} are allowed"
        sizes = {"maxBytes": str(max_bytes), "actualBytes": str(actual_bytes)}
        return cls.of(field, text, "TOO_LARGE", **sizes, **limit_facts(limit, max_bytes))


class ArchiveInvalid(InvalidRequest):
    """The import is not an archive of that format, or is truncated, damaged, of a newer version or over a limit.

    Metadata: line and place, where they are known.
    """

    reason = "ARCHIVE_INVALID"

    @classmethod
    def at(cls, description: str, *, line: int = 0, place: str = "", **metadata: str) -> Self:
        """Creates the error.

        Args:
            description: The problem at that place.
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
    """No such upload: it never existed, was used or deleted, or has expired."""

    reason = "UPLOAD_NOT_FOUND"
    resource_type = "upload"


class WrongState(DomainError):
    """The request is valid, but not in the current state of its subject."""

    def __init__(self, message: str, subject: str) -> None:
        """Takes the sentence and the id of the subject."""
        super().__init__(message, {"subject": subject})
        self.subject = subject


class TurnInProgress(WrongState):
    """A turn is running and the caller chose not to wait."""

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
    """The lease of a tool call has ended; metadata leaseId, and holder when another client holds the call now."""

    reason = "LEASE_LOST"

    def __init__(self, tool_call_id: str, lease_id: str, holder: str = "") -> None:
        """Takes the call, the lease in the request, and the present holder of the call; "" for none."""
        now = f"; {holder!r} has claimed it" if holder else ""
        super().__init__(f"lease {lease_id!r} of tool call {tool_call_id!r} has ended{now}", tool_call_id)
        self.metadata["leaseId"] = lease_id
        if holder:
            self.metadata["holder"] = holder


class LeaseHeld(WrongState):
    """Another client has claimed the tool call; metadata holder."""

    reason = "LEASE_HELD"

    def __init__(self, tool_call_id: str, holder: str, left: timedelta) -> None:
        """Takes the call, its holder, and the time until the lease ends unless it is renewed."""
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
    """Bytes of an upload would leave a gap after those received, or would follow its last ones."""

    reason = "UPLOAD_OFFSET_OUT_OF_RANGE"

    def __init__(self, asked: int, received: int, *, is_complete: bool = False) -> None:
        """Takes the offset of the request, the number of bytes received, and whether the last ones have arrived."""
        text = f"the upload is complete with {received} bytes" if is_complete else f"continue at offset {received}"
        super().__init__(
            f"{text}, not with bytes at offset {asked}", {"askedOffset": str(asked), "receivedBytes": str(received)}
        )


class ExportChanged(PositionUnavailable):
    """An archive requested from an offset on now begins with other bytes."""

    reason = "EXPORT_CHANGED"


class StaleVersion(DomainError):
    """Another change came first; metadata currentRevision."""

    reason = "STALE_VERSION"


class AnswerTooLarge(DomainError):
    """A single entry of a list is larger than the largest answer; metadata maxBytes, actualBytes, limit, limitValue."""

    reason = "ANSWER_TOO_LARGE"

    text = "one entry of the list has {actual} bytes, at most {most} are allowed; request pages"

    def __init__(self, actual_bytes: int, max_bytes: int, limit: str = "server.max_list_bytes") -> None:
        """Takes the size, as far as it was counted, and the limit, in bytes, with its name."""
        sizes = {"maxBytes": str(max_bytes), "actualBytes": str(actual_bytes)}
        text = self.text.format(actual=actual_bytes, most=max_bytes, least=actual_bytes - 1)
        super().__init__(text, {**sizes, **limit_facts(limit, max_bytes)})


class ConversationTooLarge(AnswerTooLarge):
    """A conversation is larger than the memory limit for one; it can be neither sent to a model nor copied at once."""

    text = "the conversation has more than {least} bytes, at most {most} can be read at once"

    def __init__(self, actual_bytes: int, max_bytes: int, limit: str = "MAX_CONVERSATION_BYTES") -> None:
        """See `AnswerTooLarge`."""
        super().__init__(actual_bytes, max_bytes, limit)


class ProviderError(DomainError):
    """A model provider gave no answer. After a message was accepted, this fails its turn and not the RPC."""

    reason = "PROVIDER_ERROR"


class ProviderRateLimited(ProviderError):
    """The provider's rate limit is reached; retry_after is from its header."""

    reason = "PROVIDER_RATE_LIMITED"


class ProviderUnavailable(ProviderError):
    """The provider could not be reached or is overloaded."""

    reason = "PROVIDER_UNAVAILABLE"


class ProviderTimeout(ProviderError):
    """The provider took too long."""

    reason = "PROVIDER_UNAVAILABLE"


class ProviderCredentialsRejected(ProviderError):
    """The provider does not accept our key, or none is configured."""

    reason = "PROVIDER_CREDENTIALS_REJECTED"


class ProviderRefusedRequest(ProviderError):
    """The provider rejected the request; a retry will not help."""

    reason = "PROVIDER_REQUEST_REFUSED"


class ProviderContextFull(ProviderError):
    """The conversation does not fit the model's context window."""

    reason = "PROVIDER_CONTEXT_FULL"


class ProviderStreamCut(ProviderError):
    """The stream ended without the API's end marker; the content received so far is kept."""

    reason = "PROVIDER_STREAM_CUT"


class ProviderStreamFailed(ProviderError):
    """The provider reported an error inside its stream; the content received so far is kept."""

    reason = "PROVIDER_STREAM_FAILED"


class ProviderAnswerOverLimit(ProviderStreamFailed):
    """The answer went over a limit of this server; the content received so far is kept.

    The same model is not called again. Metadata `limit` (the key in the configuration) and `limitValue`.
    """

    @classmethod
    def of(cls, what: str, key: str, value: float) -> "ProviderAnswerOverLimit":
        """Creates the error.

        Args:
            what: The problem, as it follows "the answer of the provider".
            key: The limit, without its section.
            value: Its value.
        """
        metadata = {"limit": f"limits.{key}", "limitValue": str(value)}
        return cls(f"the answer of the provider {what}: limits.{key} is {value}", metadata)


class StorageError(DomainError):
    """The database failed; nothing of the request was stored."""

    reason = "STORAGE_ERROR"

    may_pass = False
    """Whether the same work may succeed later: the disk or another process prevented it."""


class IdTaken(StorageError):
    """The id of something new is taken, possibly in another tenant."""

    @classmethod
    def of(cls, kind: str, taken_id: str) -> "IdTaken":
        """Returns the error for an id of some kind, such as "message"."""
        return cls(f"the {kind} id {taken_id} is taken", {"id": taken_id})


class StorageBusy(StorageError):
    """Another process holds the database."""

    reason = "STORAGE_BUSY"
    may_pass = True


class StorageFull(StorageError):
    """No space is left for the database."""

    reason = "STORAGE_FULL"
    may_pass = True


class StorageCorrupt(StorageError):
    """The database file is damaged, not a database, or was deleted or replaced while it was open."""

    reason = "STORAGE_CORRUPT"


class StorageSchemaTooNew(StorageError):
    """The database was written by a newer version of Turnwire."""

    reason = "STORAGE_SCHEMA_TOO_NEW"
