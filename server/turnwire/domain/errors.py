"""All errors, as one tree.

    DomainError
    +-- Unauthenticated                 the credentials are missing or wrong
    +-- PermissionDenied                the caller's role does not allow the call
    +-- InvalidRequest                  a field of the request is invalid
    |   +-- RequestIdReused
    |   +-- UnknownModel
    |   +-- MessageTooLarge
    +-- NotFound
    |   +-- SessionNotFound  MessageNotFound  TurnNotFound  ToolCallNotFound  PermissionRequestNotFound
    |   +-- StoredFileNotFound
    +-- WrongState
    |   +-- TurnInProgress  ToolCallAlreadySettled  ToolCallNotReady  PermissionAlreadyAnswered
    +-- PositionUnavailable
    |   +-- EventsCompacted  SequenceInFuture
    +-- StaleVersion
    +-- LimitReached
    |   +-- TooManyTurns  TooManyWatchers  TooManySignIns
    +-- QuotaExceeded
    +-- AnswerTooLarge
    +-- ProviderError
    |   +-- ProviderRateLimited  ProviderUnavailable  ProviderTimeout  ProviderCredentialsRejected
    |   +-- ProviderRefusedRequest  ProviderContextFull  ProviderStreamCut  ProviderStreamFailed
    +-- StorageError
    |   +-- StorageBusy  StorageFull  StorageCorrupt  StorageSchemaTooNew
    +-- ShuttingDown

Only `api/wire/status.py` maps them to status codes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Self


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
        retry_after: How long to wait before a retry; None when a retry will not help or the time is unknown.
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


class InvalidRequest(DomainError):
    """A field of the request is invalid; nothing was stored."""

    reason = "INVALID_REQUEST"

    def __init__(self, *violations: FieldViolation, metadata: Mapping[str, str] | None = None) -> None:
        """Takes one violation per invalid field, at least one."""
        text = "; ".join(f"{v.field}: {v.description}" for v in violations)
        super().__init__(text, {"field": violations[0].field, **(metadata or {})})
        self.violations = violations

    @classmethod
    def of(cls, field: str, description: str, reason: str = "INVALID", **metadata: str) -> Self:
        """Creates the error for a single field; keyword arguments become metadata."""
        return cls(FieldViolation(field, description, reason), metadata=metadata)

    def within(self, field: str) -> Self:
        """Returns the same error with its field paths prefixed by a field of the request."""
        moved = [FieldViolation(f"{field}.{v.field}", v.description, v.reason) for v in self.violations]
        metadata = {key: value for key, value in self.metadata.items() if key != "field"}
        return type(self)(*moved, metadata=metadata)


class RequestIdReused(InvalidRequest):
    """The request_id was used before with different content."""

    reason = "REQUEST_ID_REUSED"


class UnknownModel(InvalidRequest):
    """No such provider, or the provider does not offer the model."""

    reason = "MODEL_UNKNOWN"


class MessageTooLarge(InvalidRequest):
    """The message or one of its files is over the limit; metadata maxBytes and actualBytes."""

    reason = "MESSAGE_TOO_LARGE"


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


class StoredFileNotFound(NotFound):
    """No message of that session refers to such a file."""

    reason = "FILE_NOT_FOUND"
    resource_type = "file"


class WrongState(DomainError):
    """The request is valid, but not in the current state of its subject."""

    def __init__(self, message: str, subject: str) -> None:
        """Takes the sentence and the id of the subject."""
        super().__init__(message, {"subject": subject})
        self.subject = subject


class TurnInProgress(WrongState):
    """A turn is running and the caller asked not to wait."""

    reason = "TURN_IN_PROGRESS"


class ToolCallAlreadySettled(WrongState):
    """The tool call has another result already, or its turn ended."""

    reason = "TOOL_CALL_ALREADY_SETTLED"


class ToolCallNotReady(WrongState):
    """The tool call cannot take a result yet: it is being written, or waits for a permission."""

    reason = "TOOL_CALL_NOT_READY"


class PermissionAlreadyAnswered(WrongState):
    """The permission request has another answer already."""

    reason = "PERMISSION_ALREADY_ANSWERED"


class PositionUnavailable(DomainError):
    """A watch cannot start at the requested position."""

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


class StaleVersion(DomainError):
    """Another change came first; metadata currentRevision."""

    reason = "STALE_VERSION"


class LimitReached(DomainError):
    """A limit of this server is reached; a later retry may succeed."""

    reason = "CONCURRENCY_LIMIT"
    subject: ClassVar[str] = "server"


class TooManyTurns(LimitReached):
    """Too many turns run or wait."""

    subject = "turns"


class TooManyWatchers(LimitReached):
    """Too many event streams are open."""

    subject = "watchers"


class TooManySignIns(LimitReached):
    """Too many credentials are being checked."""

    subject = "sign-ins"


class QuotaExceeded(DomainError):
    """A quota of the caller's tenant is used up; metadata quota, limit and used. Nothing was stored."""

    reason = "QUOTA_EXCEEDED"

    def __init__(
        self, message: str, tenant: str, *, quota: str, limit: int, used: int, retry_after: timedelta | None = None
    ) -> None:
        """Args:
        message: A sentence for people.
        tenant: Whose quota it is.
        quota: Its name.
        limit: The most that the tenant may have or use.
        used: What it has or has used; may be more.
        retry_after: When there is room again; None when waiting alone does not help.
        """
        super().__init__(message, {"quota": quota, "limit": str(limit), "used": str(used)}, retry_after)
        self.tenant = tenant


class AnswerTooLarge(DomainError):
    """A single entry of a list is larger than the largest answer; metadata maxBytes and actualBytes."""

    reason = "ANSWER_TOO_LARGE"

    def __init__(self, actual_bytes: int, max_bytes: int) -> None:
        """Takes the size of the entry and the limit, in bytes."""
        super().__init__(
            f"one entry of the list has {actual_bytes} bytes, at most {max_bytes} are allowed; ask for pages",
            {"maxBytes": str(max_bytes), "actualBytes": str(actual_bytes)},
        )


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


class StorageError(DomainError):
    """The database failed; nothing of the request was stored."""

    reason = "STORAGE_ERROR"


class StorageBusy(StorageError):
    """Another process holds the database."""

    reason = "STORAGE_BUSY"


class StorageFull(StorageError):
    """No space is left for the database."""

    reason = "STORAGE_FULL"


class StorageCorrupt(StorageError):
    """The database file is damaged, not a database, or was deleted or replaced while it was open."""

    reason = "STORAGE_CORRUPT"


class StorageSchemaTooNew(StorageError):
    """The database was written by a newer version of Turnwire."""

    reason = "STORAGE_SCHEMA_TOO_NEW"


class ShuttingDown(DomainError):
    """The server is stopping."""

    reason = "SERVER_SHUTTING_DOWN"

    def __init__(self) -> None:
        """Suggests a retry after a second: a restart takes about that long."""
        super().__init__("the server is shutting down", retry_after=timedelta(seconds=1))
