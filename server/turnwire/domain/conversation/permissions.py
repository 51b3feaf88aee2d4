"""Permissions: values that decide whether a tool call may run."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec
from msgspec import Struct


class PermissionAction(StrEnum):
    """The configured rule for calls of a tool."""

    ALLOW = "allow"
    ASK = "ask"
    """A person is asked before each call."""
    DENY = "deny"
    """Models do not get the tool."""


class PermissionChoice(StrEnum):
    """The way in which a request was closed."""

    ONCE = "once"
    ALWAYS = "always"
    """Allows this call, and all calls in this session that the request's patterns match."""
    REJECT = "reject"
    CANCELLED = "cancelled"
    """Its turn ended before anyone answered."""

    @property
    def allows(self) -> bool:
        """True when the call may run."""
        return self in (PermissionChoice.ONCE, PermissionChoice.ALWAYS)


class PermissionAnswer(Struct, frozen=True, omit_defaults=True):
    """The answer to a permission request."""

    response: PermissionChoice
    reason: str = ""
    """The reason in the words of the person who answered; "" for none."""


class PermissionRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request to let one tool call run. It never changes after it is answered."""

    permission_id: str
    session_id: str
    turn_id: str
    message_id: str
    """The assistant message with the call."""
    part_index: int
    tool_call_id: str
    """Id of the part with the call."""
    tool: str
    """The tool's name."""
    patterns: tuple[str, ...]
    """Name patterns of the tools that "always" would allow."""
    title: str
    """One line for people."""
    created_at: datetime
    call_id: str = ""
    """The provider's id of the call."""
    metadata_json: str = ""
    """A JSON object with further facts for people, while it is open."""
    answer: PermissionAnswer | None = None
    """None while it is open."""

    def closed(self, answer: PermissionAnswer) -> "PermissionRequest":
        """Returns it with its answer, and without metadata, which the call keeps."""
        return msgspec.structs.replace(self, answer=answer, metadata_json="")


def matches_glob(patterns: Iterable[str], tool: str) -> bool:
    """Returns whether one of the patterns, such as "fs.write_*", matches a tool name. Case-sensitive."""
    return any(fnmatchcase(tool, pattern) for pattern in patterns)
