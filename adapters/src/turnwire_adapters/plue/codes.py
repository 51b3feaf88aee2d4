"""Plue's numeric codes: one for each reason of an error or a failure."""

from enum import IntEnum


class PlueCode(IntEnum):
    """The codes that Plue's functions returned."""

    OK = 0
    INVALID_PARAM = -1
    NOT_FOUND = -2
    ALREADY_EXISTS = -3
    PROVIDER_AUTH = -4
    PROVIDER_INIT = -5
    JSON_PARSE = -6
    IO = -7
    TIMEOUT = -8
    ABORTED = -9
    UNKNOWN = -99


_REASONS = {
    PlueCode.INVALID_PARAM: (
        "INVALID_REQUEST", "MESSAGE_TOO_LARGE", "ANSWER_TOO_LARGE", "TOOL_CALL_NOT_READY", "SEQUENCE_IN_FUTURE",
        "TOOL_CALLS_OPEN", "UPLOAD_OFFSET_OUT_OF_RANGE", "PROVIDER_REQUEST_REFUSED", "PROVIDER_CONTEXT_FULL",
    ),
    PlueCode.NOT_FOUND: (
        "SESSION_NOT_FOUND", "MESSAGE_NOT_FOUND", "TURN_NOT_FOUND", "TOOL_CALL_NOT_FOUND", "FILE_NOT_FOUND",
        "PERMISSION_REQUEST_NOT_FOUND", "QUESTION_NOT_FOUND", "UPLOAD_NOT_FOUND", "EVENTS_COMPACTED",
        "NOTHING_TO_RESTORE", "EXPORT_CHANGED", "TURN_NOT_RUNNING",
    ),
    PlueCode.ALREADY_EXISTS: (
        "REQUEST_ID_REUSED", "IMPORT_RUNNING", "TURN_IN_PROGRESS", "TURN_EXISTS", "TOOL_CALL_ALREADY_SETTLED",
        "PERMISSION_ALREADY_ANSWERED", "MESSAGE_NOT_WAITING", "STALE_VERSION", "LEASE_LOST", "LEASE_HELD",
        "QUESTION_ALREADY_ANSWERED",
    ),
    PlueCode.PROVIDER_AUTH: ("PROVIDER_CREDENTIALS_REJECTED",),
    PlueCode.PROVIDER_INIT: ("MODEL_UNKNOWN",),
    PlueCode.JSON_PARSE: ("ARCHIVE_INVALID",),
    PlueCode.IO: (
        "STORAGE_FULL", "STORAGE_BUSY", "STORAGE_CORRUPT", "STORAGE_ERROR", "PROVIDER_STREAM_CUT",
        "PROVIDER_STREAM_FAILED",
    ),
    PlueCode.TIMEOUT: ("PROVIDER_UNAVAILABLE", "PROVIDER_RATE_LIMITED", "CONCURRENCY_LIMIT", "SEARCH_TOO_COSTLY"),
    PlueCode.ABORTED: (
        "SERVER_SHUTTING_DOWN", "SERVER_RESTARTED", "SESSION_MOVING", "OUTCOME_UNKNOWN", "TOOL_CALL_REPEATED",
        "BUDGET_EXHAUSTED",
    ),
    PlueCode.UNKNOWN: ("INTERNAL", "UNAUTHENTICATED", "PERMISSION_DENIED", "QUOTA_EXCEEDED", "FAILED_ELSEWHERE"),
}  # fmt: skip

CODES = {reason: code for code, reasons in _REASONS.items() for reason in reasons}
"""Every reason of the contract (`ErrorReason`) and its code. UNKNOWN: Plue had no word for it."""


def plue_code(reason: str) -> PlueCode:
    """Returns the code of a reason; UNKNOWN for one that is newer than this table."""
    return CODES.get(reason, PlueCode.UNKNOWN)


class PlueError(Exception):
    """Invalid input of a client; nothing was sent to the server."""

    def __init__(self, code: PlueCode, message: str) -> None:
        """Takes the code and a sentence for people."""
        super().__init__(message)
        self.code = code
        self.message = message
