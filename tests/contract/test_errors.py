"""Every domain error has its status, as the table of the house style says; what a client reads of it is complete."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import code_pb2, status_pb2
from google.rpc import error_details_pb2 as details

from turnwire.api.wire.status import ERROR_DOMAIN, MAX_TEXT, STATUS_CODES, internal_status, status_code, status_of
from turnwire.domain import errors as e

WAIT = timedelta(seconds=2.5)

DETAILS = {
    "google.rpc.ErrorInfo": details.ErrorInfo,
    "google.rpc.BadRequest": details.BadRequest,
    "google.rpc.ResourceInfo": details.ResourceInfo,
    "google.rpc.PreconditionFailure": details.PreconditionFailure,
    "google.rpc.QuotaFailure": details.QuotaFailure,
    "google.rpc.RetryInfo": details.RetryInfo,
    "google.rpc.RequestInfo": details.RequestInfo,
}

TABLE: dict[type[e.DomainError], tuple[int, str, str]] = {
    e.DomainError: (code_pb2.INTERNAL, "INTERNAL", ""),
    e.Unauthenticated: (code_pb2.UNAUTHENTICATED, "UNAUTHENTICATED", ""),
    e.PermissionDenied: (code_pb2.PERMISSION_DENIED, "PERMISSION_DENIED", ""),
    e.InvalidRequest: (code_pb2.INVALID_ARGUMENT, "INVALID_REQUEST", "BadRequest"),
    e.RequestIdReused: (code_pb2.INVALID_ARGUMENT, "REQUEST_ID_REUSED", "BadRequest"),
    e.UnknownModel: (code_pb2.INVALID_ARGUMENT, "MODEL_UNKNOWN", "BadRequest"),
    e.MessageTooLarge: (code_pb2.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE", "BadRequest"),
    e.ArchiveInvalid: (code_pb2.INVALID_ARGUMENT, "ARCHIVE_INVALID", "BadRequest"),
    e.SessionNotFound: (code_pb2.NOT_FOUND, "SESSION_NOT_FOUND", "ResourceInfo"),
    e.MessageNotFound: (code_pb2.NOT_FOUND, "MESSAGE_NOT_FOUND", "ResourceInfo"),
    e.TurnNotFound: (code_pb2.NOT_FOUND, "TURN_NOT_FOUND", "ResourceInfo"),
    e.ToolCallNotFound: (code_pb2.NOT_FOUND, "TOOL_CALL_NOT_FOUND", "ResourceInfo"),
    e.QuestionNotFound: (code_pb2.NOT_FOUND, "QUESTION_NOT_FOUND", "ResourceInfo"),
    e.QuestionAlreadyAnswered: (code_pb2.FAILED_PRECONDITION, "QUESTION_ALREADY_ANSWERED", "PreconditionFailure"),
    e.PermissionRequestNotFound: (code_pb2.NOT_FOUND, "PERMISSION_REQUEST_NOT_FOUND", "ResourceInfo"),
    e.StoredFileNotFound: (code_pb2.NOT_FOUND, "FILE_NOT_FOUND", "ResourceInfo"),
    e.UploadNotFound: (code_pb2.NOT_FOUND, "UPLOAD_NOT_FOUND", "ResourceInfo"),
    e.TurnInProgress: (code_pb2.FAILED_PRECONDITION, "TURN_IN_PROGRESS", "PreconditionFailure"),
    e.TurnNotRunning: (code_pb2.FAILED_PRECONDITION, "TURN_NOT_RUNNING", "PreconditionFailure"),
    e.TurnExists: (code_pb2.FAILED_PRECONDITION, "TURN_EXISTS", "PreconditionFailure"),
    e.ToolCallsOpen: (code_pb2.FAILED_PRECONDITION, "TOOL_CALLS_OPEN", "PreconditionFailure"),
    e.MessageNotWaiting: (code_pb2.FAILED_PRECONDITION, "MESSAGE_NOT_WAITING", "PreconditionFailure"),
    e.NothingToRestore: (code_pb2.FAILED_PRECONDITION, "NOTHING_TO_RESTORE", "PreconditionFailure"),
    e.ToolCallNotReady: (code_pb2.FAILED_PRECONDITION, "TOOL_CALL_NOT_READY", "PreconditionFailure"),
    e.LeaseLost: (code_pb2.FAILED_PRECONDITION, "LEASE_LOST", "PreconditionFailure"),
    e.LeaseHeld: (code_pb2.FAILED_PRECONDITION, "LEASE_HELD", "PreconditionFailure RetryInfo"),
    e.ToolCallAlreadySettled: (code_pb2.FAILED_PRECONDITION, "TOOL_CALL_ALREADY_SETTLED", "PreconditionFailure"),
    e.PermissionAlreadyAnswered: (code_pb2.FAILED_PRECONDITION, "PERMISSION_ALREADY_ANSWERED", "PreconditionFailure"),
    e.EventsCompacted: (code_pb2.OUT_OF_RANGE, "EVENTS_COMPACTED", ""),
    e.SequenceInFuture: (code_pb2.OUT_OF_RANGE, "SEQUENCE_IN_FUTURE", ""),
    e.UploadOffsetOutOfRange: (code_pb2.OUT_OF_RANGE, "UPLOAD_OFFSET_OUT_OF_RANGE", ""),
    e.StaleVersion: (code_pb2.ABORTED, "STALE_VERSION", ""),
    e.TooManyTurns: (code_pb2.RESOURCE_EXHAUSTED, "CONCURRENCY_LIMIT", "QuotaFailure RetryInfo"),
    e.TooManyWatchers: (code_pb2.RESOURCE_EXHAUSTED, "CONCURRENCY_LIMIT", "QuotaFailure RetryInfo"),
    e.TooManyCalls: (code_pb2.RESOURCE_EXHAUSTED, "CONCURRENCY_LIMIT", "QuotaFailure RetryInfo"),
    e.MemoryShort: (code_pb2.RESOURCE_EXHAUSTED, "CONCURRENCY_LIMIT", "QuotaFailure RetryInfo"),
    e.RequestTooSlow: (code_pb2.RESOURCE_EXHAUSTED, "CONCURRENCY_LIMIT", "QuotaFailure RetryInfo"),
    e.TooManySignIns: (code_pb2.RESOURCE_EXHAUSTED, "CONCURRENCY_LIMIT", "QuotaFailure RetryInfo"),
    e.TooManyUploads: (code_pb2.RESOURCE_EXHAUSTED, "CONCURRENCY_LIMIT", "QuotaFailure RetryInfo"),
    e.TooManySearches: (code_pb2.RESOURCE_EXHAUSTED, "CONCURRENCY_LIMIT", "QuotaFailure RetryInfo"),
    e.SearchTooCostly: (code_pb2.RESOURCE_EXHAUSTED, "SEARCH_TOO_COSTLY", ""),
    e.QuotaExceeded: (code_pb2.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", "QuotaFailure"),
    e.AnswerTooLarge: (code_pb2.RESOURCE_EXHAUSTED, "ANSWER_TOO_LARGE", ""),
    e.ConversationTooLarge: (code_pb2.RESOURCE_EXHAUSTED, "ANSWER_TOO_LARGE", ""),
    e.ProviderRateLimited: (code_pb2.RESOURCE_EXHAUSTED, "PROVIDER_RATE_LIMITED", "RetryInfo"),
    e.ProviderUnavailable: (code_pb2.UNAVAILABLE, "PROVIDER_UNAVAILABLE", "RetryInfo"),
    e.ProviderTimeout: (code_pb2.UNAVAILABLE, "PROVIDER_UNAVAILABLE", "RetryInfo"),
    e.ProviderCredentialsRejected: (code_pb2.FAILED_PRECONDITION, "PROVIDER_CREDENTIALS_REJECTED", ""),
    e.ProviderRefusedRequest: (code_pb2.FAILED_PRECONDITION, "PROVIDER_REQUEST_REFUSED", ""),
    e.ProviderContextFull: (code_pb2.FAILED_PRECONDITION, "PROVIDER_CONTEXT_FULL", ""),
    e.ProviderStreamCut: (code_pb2.UNAVAILABLE, "PROVIDER_STREAM_CUT", "RetryInfo"),
    e.ProviderStreamFailed: (code_pb2.UNAVAILABLE, "PROVIDER_STREAM_FAILED", "RetryInfo"),
    e.ProviderAnswerOverLimit: (code_pb2.UNAVAILABLE, "PROVIDER_STREAM_FAILED", "RetryInfo"),
    e.IdTaken: (code_pb2.INTERNAL, "STORAGE_ERROR", ""),
    e.StorageBusy: (code_pb2.UNAVAILABLE, "STORAGE_BUSY", "RetryInfo"),
    e.StorageFull: (code_pb2.RESOURCE_EXHAUSTED, "STORAGE_FULL", ""),
    e.StorageCorrupt: (code_pb2.DATA_LOSS, "STORAGE_CORRUPT", ""),
    e.StorageSchemaTooNew: (code_pb2.FAILED_PRECONDITION, "STORAGE_SCHEMA_TOO_NEW", ""),
    e.ImportRunning: (code_pb2.FAILED_PRECONDITION, "IMPORT_RUNNING", "PreconditionFailure"),
    e.TooManyTransfers: (code_pb2.RESOURCE_EXHAUSTED, "CONCURRENCY_LIMIT", "QuotaFailure RetryInfo"),
    e.ExportChanged: (code_pb2.OUT_OF_RANGE, "EXPORT_CHANGED", ""),
    e.ShuttingDown: (code_pb2.UNAVAILABLE, "SERVER_SHUTTING_DOWN", "RetryInfo"),
    e.SessionMoving: (code_pb2.UNAVAILABLE, "SESSION_MOVING", "RetryInfo"),
    e.OutcomeUnknown: (code_pb2.UNAVAILABLE, "OUTCOME_UNKNOWN", "RetryInfo"),
}
"""Class to code, reason and the kinds of details beside ErrorInfo."""

BASES = {e.NotFound, e.WrongState, e.PositionUnavailable, e.LimitReached, e.ProviderError, e.StorageError}
"""Classes for grouping; StorageError and ProviderError are also raised themselves."""


def _all_subclasses(base: type[e.DomainError]) -> Iterator[type[e.DomainError]]:
    yield base
    for subclass in base.__subclasses__():
        yield from _all_subclasses(subclass)


def _subclasses(base: type[e.DomainError]) -> Iterator[type[e.DomainError]]:
    return (kind for kind in _all_subclasses(base) if kind.__module__ == e.__name__)


def _make(kind: type[e.DomainError]) -> e.DomainError:
    """Makes an error of a class, as its own constructor wants it."""
    arguments: tuple[Any, ...] = ("went wrong", {"key": "value"})
    if issubclass(kind, e.InvalidRequest):
        arguments = (e.FieldViolation("parts[0].file.url", "is wrong", "BAD"), e.FieldViolation("agent", "is worse"))
    elif issubclass(kind, e.NotFound):
        arguments = ("id_1",)
    elif issubclass(kind, e.LeaseHeld):
        arguments = ("prt_1", "an editor", timedelta(seconds=2))
    elif issubclass(kind, e.WrongState):
        arguments = ("went wrong", "id_1")
    elif issubclass(kind, e.PositionUnavailable):
        arguments = ("went wrong", 1, 3, 9)
    elif issubclass(kind, e.AnswerTooLarge | e.UploadOffsetOutOfRange):
        arguments = (9, 3)
    elif issubclass(kind, e.ShuttingDown | e.SessionMoving | e.OutcomeUnknown):
        arguments = ()
    elif issubclass(kind, e.Unauthenticated):
        arguments = ("the token is expired",)
    elif issubclass(kind, e.SearchTooCostly):
        arguments = (2.0,)
    elif issubclass(kind, e.QuotaExceeded):
        return e.QuotaExceeded("went wrong", "acme", quota="sessions", limit=2, used=3)
    return kind(*arguments)


def _details(status: status_pb2.Status) -> list[Message]:
    """Returns the details of a status as a client reads them."""
    found = []
    for packed in status_pb2.Status.FromString(status.SerializeToString()).details:
        message = DETAILS[packed.TypeName()]()
        assert packed.Unpack(message)
        found.append(message)
    return found


def test_the_table_is_total() -> None:
    """Every class of the tree is in the table of this test, or is one that only groups others."""
    assert set(_subclasses(e.DomainError)) == set(TABLE) | BASES


def test_a_class_outside_of_the_tree_is_sent_as_its_parent() -> None:
    """The storage derives one for itself, to catch it: it has no reason and no status of its own."""
    derived = set(_all_subclasses(e.DomainError)) - set(_subclasses(e.DomainError))
    assert [kind for kind in derived if "reason" in vars(kind) or kind in STATUS_CODES] == []


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """Every class is drawn."""
    drawn = set(re.findall(r"\b[A-Z]\w+\b", (e.__doc__ or "").split("Only `rpc")[0]))
    assert {kind.__name__ for kind in _subclasses(e.DomainError)} <= drawn


def test_the_status_codes_name_only_domain_errors() -> None:
    """And each with the code that a client gets."""
    assert {kind: status_code(_make(kind)) for kind in STATUS_CODES} == STATUS_CODES


def test_each_error_has_its_status() -> None:
    """Code, reason and further details are those of the table; ErrorInfo comes first and once, with all metadata."""
    for kind, (code, reason, kinds) in TABLE.items():
        error = _make(kind)
        status = status_of(error)
        found = _details(status)
        assert (status.code, status.message) == (code, error.message)
        metadata = dict(error.metadata)
        assert found[0] == details.ErrorInfo(reason=reason, domain=ERROR_DOMAIN, metadata=metadata)
        assert [type(detail).__name__ for detail in found[1:]] == kinds.split()


def test_every_error_has_the_same_attributes() -> None:
    """Reason in upper case, message, metadata of text by lowerCamelCase keys, and retry_after or None."""
    for kind in _subclasses(e.DomainError):
        error = _make(kind)
        assert re.fullmatch(r"[A-Z][A-Z_]{0,62}", error.reason)
        assert error.message and str(error) == error.message
        assert all(re.fullmatch(r"[a-z][a-zA-Z]*", key) and type(value) is str for key, value in error.metadata.items())
        assert error.retry_after is None or isinstance(error.retry_after, timedelta)


def test_bad_requests_name_every_field() -> None:
    """Path, description and reason of each violation."""
    found = _details(status_of(_make(e.InvalidRequest)))
    violation = details.BadRequest.FieldViolation
    assert found[1] == details.BadRequest(
        field_violations=[
            violation(field="parts[0].file.url", description="is wrong", reason="BAD"),
            violation(field="agent", description="is worse", reason="INVALID"),
        ]
    )


def test_a_value_over_a_limit_tells_the_limit() -> None:
    """The first wrong field has it, also when the path gets a prefix; other violations have none."""
    error = e.InvalidRequest(
        e.FieldViolation("title", "is too long", "TOO_LONG", 1024), e.FieldViolation("agent", "no")
    )
    found = _details(status_of(error.within("settings")))
    assert dict(found[0].metadata) == {"field": "settings.title", "limitValue": "1024"}
    assert "limitValue" not in e.InvalidRequest.of("agent", "is not known").metadata


@pytest.mark.parametrize(("count", "shown"), [(100, "ü" * 100), (101, "ü" * 100 + "…")], ids=["whole", "cut"])
def test_long_texts_are_cut(count: int, shown: str) -> None:
    """By their bytes, at the end of a character: headers of gRPC have a bound."""
    found = status_of(e.InvalidRequest.of("ü" * count, "ü" * (3 * count)))
    violation, message = _details(found)[1].field_violations[0], found.message
    assert (violation.field, violation.description) == (shown, ("ü" * 100) + "…")
    assert message.endswith("…") and len(message.encode()) <= 3 * MAX_TEXT + len("…".encode())


def test_a_too_large_message_tells_both_sizes() -> None:
    """As metadata, beside the field."""
    error = e.MessageTooLarge.of("parts", "is too large", "TOO_LARGE", maxBytes="1", actualBytes="2")
    found = _details(status_of(error))
    sizes = {"field": "parts", "maxBytes": "1", "actualBytes": "2"}
    assert dict(found[0].metadata) == sizes


@pytest.mark.parametrize(
    ("error", "resource_type"),
    [
        (e.SessionNotFound("id_1"), "session"),
        (e.MessageNotFound("id_1"), "message"),
        (e.TurnNotFound("id_1"), "turn"),
        (e.ToolCallNotFound("id_1"), "tool call"),
        (e.PermissionRequestNotFound("id_1"), "permission request"),
        (e.QuestionNotFound("id_1"), "question"),
    ],
)
def test_what_was_not_found_is_named(error: e.NotFound, resource_type: str) -> None:
    """By type and id, as a detail and as metadata."""
    found = _details(status_of(error))
    assert found[1] == details.ResourceInfo(resource_type=resource_type, resource_name="id_1")
    assert error.metadata == {"resourceId": "id_1"}


def test_a_wrong_state_names_its_subject() -> None:
    """The precondition's type is the reason."""
    found = _details(status_of(e.TurnInProgress("turn 'trn_1' runs", "trn_1")))
    violation = details.PreconditionFailure.Violation(
        type="TURN_IN_PROGRESS", subject="trn_1", description="turn 'trn_1' runs"
    )
    assert found[1] == details.PreconditionFailure(violations=[violation])


def test_positions_tell_what_is_kept() -> None:
    """A client can start again without asking."""
    found = _details(status_of(e.EventsCompacted("gone", 1, 3, 9)))
    places = {"askedSequence": "1", "earliestSequence": "3", "latestSequence": "9"}
    assert dict(found[0].metadata) == places


def test_quota_names_its_tenant_and_when_it_is_reset() -> None:
    """Without a time, waiting alone does not help."""
    error = e.QuotaExceeded("no more", "acme", quota="tokens_per_day", limit=2, used=3, retry_after=WAIT)
    quota, retry = _details(status_of(error))[1:]
    assert quota == details.QuotaFailure(
        violations=[details.QuotaFailure.Violation(subject="tenant:acme", description="no more")]
    )
    assert retry == details.RetryInfo(retry_delay=Duration(seconds=2, nanos=500_000_000))


@pytest.mark.parametrize(
    ("kind", "subject"), [(e.TooManyTurns, "turns"), (e.TooManyWatchers, "watchers"), (e.TooManyUploads, "uploads")]
)
def test_limits_name_what_is_limited(kind: type[e.LimitReached], subject: str) -> None:
    """As a quota failure."""
    found = _details(status_of(kind("100 already", {"limit": "100"})))
    violation = details.QuotaFailure.Violation(subject=subject, description="100 already")
    assert found[1] == details.QuotaFailure(violations=[violation])


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (e.ProviderRateLimited("slow down", retry_after=WAIT), 2.5),
        (e.ProviderRateLimited("slow down"), 1.0),
        (e.StorageBusy("busy"), 1.0),
        (e.ShuttingDown(), 1.0),
    ],
)
def test_retries_are_told_when_to_come_back(error: e.DomainError, seconds: float) -> None:
    """As the error knows it, else after a second."""
    found = _details(status_of(error))
    delay = Duration()
    delay.FromTimedelta(timedelta(seconds=seconds))
    assert found[-1] == details.RetryInfo(retry_delay=delay)


def test_an_unforeseen_error_tells_only_its_id() -> None:
    """INTERNAL, a fixed text, and the id under which the log has more."""
    status = internal_status("rpc_1")
    found = _details(status)
    assert (status.code, status.message) == (code_pb2.INTERNAL, "internal error; the server's log has more")
    assert found == [details.ErrorInfo(reason="INTERNAL", domain=ERROR_DOMAIN), details.RequestInfo(request_id="rpc_1")]
