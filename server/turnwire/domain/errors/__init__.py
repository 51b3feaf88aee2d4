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
    +-- ShuttingDown

Only `api/wire/status.py` maps them to status codes.
"""

from turnwire.domain.errors.access import (
    LimitReached,
    MemoryShort,
    PermissionDenied,
    QuotaExceeded,
    RequestTooSlow,
    SearchTooCostly,
    ShuttingDown,
    TooManyCalls,
    TooManySearches,
    TooManySignIns,
    TooManyTransfers,
    TooManyTurns,
    TooManyUploads,
    TooManyWatchers,
    Unauthenticated,
)
from turnwire.domain.errors.base import DomainError, FieldViolation, limit_facts
from turnwire.domain.errors.providers import (
    ProviderAnswerOverLimit,
    ProviderContextFull,
    ProviderCredentialsRejected,
    ProviderError,
    ProviderRateLimited,
    ProviderRefusedRequest,
    ProviderStreamCut,
    ProviderStreamFailed,
    ProviderTimeout,
    ProviderUnavailable,
)
from turnwire.domain.errors.requests import (
    AnswerTooLarge,
    ArchiveInvalid,
    ConversationTooLarge,
    EventsCompacted,
    ExportChanged,
    ImportRunning,
    InvalidRequest,
    LeaseHeld,
    LeaseLost,
    MessageNotFound,
    MessageNotWaiting,
    MessageTooLarge,
    NotFound,
    NothingToRestore,
    PermissionAlreadyAnswered,
    PermissionRequestNotFound,
    PositionUnavailable,
    QuestionAlreadyAnswered,
    QuestionNotFound,
    RequestIdReused,
    SequenceInFuture,
    SessionNotFound,
    StaleVersion,
    StoredFileNotFound,
    ToolCallAlreadySettled,
    ToolCallNotFound,
    ToolCallNotReady,
    ToolCallsOpen,
    TurnExists,
    TurnInProgress,
    TurnNotFound,
    TurnNotRunning,
    UnknownModel,
    UploadNotFound,
    UploadOffsetOutOfRange,
    WrongState,
)
from turnwire.domain.errors.storage import (
    IdTaken,
    StorageBusy,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageSchemaTooNew,
)

__all__ = [
    "AnswerTooLarge",
    "ArchiveInvalid",
    "ConversationTooLarge",
    "DomainError",
    "EventsCompacted",
    "ExportChanged",
    "FieldViolation",
    "IdTaken",
    "ImportRunning",
    "InvalidRequest",
    "LeaseHeld",
    "LeaseLost",
    "LimitReached",
    "MemoryShort",
    "MessageNotFound",
    "MessageNotWaiting",
    "MessageTooLarge",
    "NotFound",
    "NothingToRestore",
    "PermissionAlreadyAnswered",
    "PermissionDenied",
    "PermissionRequestNotFound",
    "PositionUnavailable",
    "ProviderAnswerOverLimit",
    "ProviderContextFull",
    "ProviderCredentialsRejected",
    "ProviderError",
    "ProviderRateLimited",
    "ProviderRefusedRequest",
    "ProviderStreamCut",
    "ProviderStreamFailed",
    "ProviderTimeout",
    "ProviderUnavailable",
    "QuestionAlreadyAnswered",
    "QuestionNotFound",
    "QuotaExceeded",
    "RequestIdReused",
    "RequestTooSlow",
    "SearchTooCostly",
    "SequenceInFuture",
    "SessionNotFound",
    "ShuttingDown",
    "StaleVersion",
    "StorageBusy",
    "StorageCorrupt",
    "StorageError",
    "StorageFull",
    "StorageSchemaTooNew",
    "StoredFileNotFound",
    "TooManyCalls",
    "TooManySearches",
    "TooManySignIns",
    "TooManyTransfers",
    "TooManyTurns",
    "TooManyUploads",
    "TooManyWatchers",
    "ToolCallAlreadySettled",
    "ToolCallNotFound",
    "ToolCallNotReady",
    "ToolCallsOpen",
    "TurnExists",
    "TurnInProgress",
    "TurnNotFound",
    "TurnNotRunning",
    "Unauthenticated",
    "UnknownModel",
    "UploadNotFound",
    "UploadOffsetOutOfRange",
    "WrongState",
    "limit_facts",
]
