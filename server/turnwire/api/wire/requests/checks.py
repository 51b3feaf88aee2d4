"""Checking the form of requests: collects every field that is wrong, so that one answer names them all."""

from collections.abc import Container, Sized
from datetime import UTC, datetime

import msgspec
from google.protobuf.timestamp_pb2 import Timestamp

from turnwire.domain.conversation.limits import MAX_METADATA_BYTES, TOOL_NAME
from turnwire.domain.errors import FieldViolation, InvalidRequest

MAX_PAGE_SIZE = 1000
"""Messages or sessions in one page: about what a client can show, and below gRPC's default limit for an answer."""

MAX_NOTED = 100
"""Violations of one request that are noted; an answer tells fewer."""

MAX_NAME_CHARACTERS = 1024
"""Maximum length of an id or a name that a request must have. Those that exist are shorter."""

_json_decode = msgspec.json.Decoder(msgspec.Raw).decode


class Checks:
    """Violations found so far. Call `done` before using what was checked."""

    def __init__(self) -> None:
        """Begins without violations."""
        self._violations: list[FieldViolation] = []
        self._prefix = ""

    def within(self, field: str) -> "Checks":
        """Returns checks of a message in a field of the request: what they note, these hold, with the whole path."""
        inner = Checks()
        inner._violations, inner._prefix = self._violations, f"{self._prefix}{field}."
        return inner

    def fail(self, field: str, description: str, reason: str = "INVALID", limit: int | None = None) -> None:
        """Notes a violation; `limit` is what the value is over, if that is wrong."""
        if len(self._violations) < MAX_NOTED:
            self._violations.append(FieldViolation(self._prefix + field, description, reason, limit))

    def required(self, field: str, value: str) -> str:
        """Notes a violation unless the text is not empty, and no longer than names are. Returns it."""
        if not value:
            self.fail(field, "is required", "REQUIRED")
        return self.at_most(field, value, MAX_NAME_CHARACTERS)

    def few(self, field: str, values: Sized, most: int, what: str) -> bool:
        """Notes a violation when there are more. Returns whether there are few enough to look at each."""
        if len(values) > most:
            self.fail(field, f"has more than {most} {what}", "TOO_MANY", most)
        return len(values) <= most

    def at_most(self, field: str, value: str, characters: int) -> str:
        """Notes a violation when the text is longer. Returns it."""
        if len(value) > characters:
            self.fail(field, f"is longer than {characters} characters", "TOO_LONG", characters)
        return value

    def one_of(self, field: str, value: str, allowed: Container[str], names: str) -> str:
        """Notes a violation unless the text is one of the allowed ones. Returns it."""
        if value not in allowed:
            self.fail(field, f"is not one of {names}")
        return value

    def moment(self, field: str, sent: Timestamp) -> datetime | None:
        """Notes a violation, and returns None, when a moment is none of the years 1 to 9999. Returns it in UTC."""
        try:
            return sent.ToDatetime(UTC)
        except (ValueError, OverflowError):
            self.fail(field, "is not a moment from the years 1 to 9999", "OUT_OF_RANGE")
            return None

    def json_object(self, field: str, text: str) -> str:
        """Notes a violation unless the text is "" or a JSON object within the limit. Returns it."""
        if not text:
            return text
        if len(text) > MAX_METADATA_BYTES or len(text.encode()) > MAX_METADATA_BYTES:
            self.fail(field, f"is larger than {MAX_METADATA_BYTES} bytes", "TOO_LONG", MAX_METADATA_BYTES)
        else:
            try:
                value = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError):
                value = None
            if not isinstance(value, dict):
                self.fail(field, "is not a JSON object", "BAD_JSON")
        return text

    def json_text(self, field: str, text: str, *, required: bool = False) -> str:
        """Notes a violation unless the text is JSON of any kind, or "" where it is not required. Returns it."""
        if text or required:
            try:
                _json_decode(text)  # reads no numbers, so none is too large
            except (msgspec.DecodeError, RecursionError):
                self.fail(field, "is not JSON", "BAD_JSON")
        return text

    def tool_name(self, field: str, name: str) -> str:
        """Notes a violation unless the name is one that every model API takes. Returns it."""
        if not TOOL_NAME.fullmatch(name):
            self.fail(field, "is not 1 to 64 of the characters A-Z a-z 0-9 _ -")
        return name

    def page_size(self, size: int) -> int:
        """Notes a violation when the page is too large. Returns its size."""
        if size > MAX_PAGE_SIZE:
            self.fail("page_size", f"is larger than {MAX_PAGE_SIZE}", "TOO_LARGE", MAX_PAGE_SIZE)
        return size

    def done(self) -> None:
        """Raises InvalidRequest when there were violations."""
        if self._violations:
            raise InvalidRequest(*self._violations)


def required_ids(**ids: str) -> None:
    """Raises InvalidRequest naming every id that is empty."""
    checks = Checks()
    for field, value in ids.items():
        checks.required(field, value)
    checks.done()
