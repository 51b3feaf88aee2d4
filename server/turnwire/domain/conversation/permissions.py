"""Permissions: whether a tool call may run, and who said so."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase

from msgspec import Struct


class PermissionAction(StrEnum):
    """What the configuration says of a tool's calls."""

    ALLOW = "allow"
    ASK = "ask"
    """A person is asked before each call."""
    DENY = "deny"
    """Models are not offered the tool."""


class PermissionChoice(StrEnum):
    """How a request was closed."""

    ONCE = "once"
    ALWAYS = "always"
    """This call, and in this session all calls that the request's patterns match."""
    REJECT = "reject"
    CANCELLED = "cancelled"
    """Its turn ended before anybody answered."""

    @property
    def allows(self) -> bool:
        """True when the call may run."""
        return self in (PermissionChoice.ONCE, PermissionChoice.ALWAYS)


class PermissionAnswer(Struct, frozen=True, omit_defaults=True):
    """An answer."""

    response: PermissionChoice
    reason: str = ""
    """In the words of whoever answered; "" when not said."""


class PermissionRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request to let one tool call run. Immutable once it has its answer."""

    permission_id: str
    session_id: str
    turn_id: str
    message_id: str
    """The assistant message that holds the call."""
    part_index: int
    tool_call_id: str
    """Id of the part that holds the call."""
    tool: str
    """The tool's name."""
    patterns: tuple[str, ...]
    """Names and patterns of tools that "always" would allow."""
    title: str
    """A line for people."""
    created_at: datetime
    call_id: str = ""
    """The provider's id of the call."""
    metadata_json: str = ""
    """A JSON object with further facts for people."""
    answer: PermissionAnswer | None = None
    """None while it is open."""


def matches_glob(patterns: Iterable[str], tool: str) -> bool:
    """Tells whether one of the patterns, such as "fs.write_*", matches the name of a tool. Case counts."""
    return any(fnmatchcase(tool, pattern) for pattern in patterns)
