"""A commit while it is applied: the session that it belongs to, and what is known of it so far."""

import sqlite3
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import NamedTuple

import msgspec

from turnwire.domain.conversation.sessions import Session
from turnwire.domain.money import Consumption
from turnwire.ports.commit import MarkArchived, RequireQuota, Rewound, SessionState
from turnwire.storage.sqlite.writing.rows import Rows

_encode_json = msgspec.json.Encoder().encode


class SessionRow(NamedTuple):
    """The session of a commit, as it was before the commit."""

    id: int
    tenant: str
    head_sequence: int
    pruned_through: int
    stored_bytes: int
    branched_at: int
    """The sequence of the last change of its path; 0 when there was none."""
    archived_at_us: int = 0
    state: str = SessionState.LIVE
    first_words: str = ""
    joins: int | None = None
    """The row of the session that an imported one is to join."""
    is_new: bool = False

    @property
    def found_in(self) -> int:
        """The row of the session in which a search finds its messages."""
        return self.joins or self.id

    @property
    def counted(self) -> tuple[int, int]:
        """How many sessions it was in its tenant's account, and how many bytes."""
        return (1, self.stored_bytes) if self.state == SessionState.LIVE and not self.is_new else (0, 0)


class TurnWrite(NamedTuple):
    """A turn that is to be written; see `writing.turns`."""

    is_new: bool
    values: tuple[object, ...]
    start_sequence: int
    end_sequence: int
    key: tuple[object, ...]


@dataclass
class Unit:
    """One commit inside the open transaction. Lives as long as it is applied, on the writer's thread."""

    db: sqlite3.Connection
    session: SessionRow
    session_id: str
    rows: Rows
    """What the transaction has yet to write."""
    added_bytes: int = 0
    """What the changes add to `sessions.stored_bytes`."""
    turn_starts: dict[str, int] = field(default_factory=dict)
    """The sequence at which each turn that was written has started, by its id; 0 while it has not."""
    turns: dict[str, TurnWrite] = field(default_factory=dict)
    """The turns that are to be written with the numbers of their events, by their ids."""
    quota: RequireQuota | None = None
    """What the tenant may have, if that is to be checked."""
    file_bytes: int = 0
    """Of the files that were added, less those that were removed."""
    spent: list[tuple[date, Consumption]] = field(default_factory=list)
    previous: dict[str, str] = field(default_factory=dict)
    """The message before each message that was written, by its id; "" when there is none, or while it is queued."""
    state: SessionState = SessionState.LIVE
    """That of the session after the changes so far."""
    rewound: Rewound | None = None
    """Which messages were hidden or brought back, or left and joined the path."""
    is_branched: bool = False
    """Whether messages of the session may be off its path."""
    alternatives: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of the messages that were written: how many alternatives each has, and its place among them."""
    archived_at_us: int = 0
    """When the session was archived, as of the changes so far; 0 when it is not."""
    first_words: str = ""
    """Those of the session, as of the changes so far."""
    titles: dict[str, str] = field(default_factory=dict)
    """The title that the session is shown with because of a message, by its id."""
    marked: MarkArchived | None = None
    """The change that has marked it otherwise than before."""
    queue_revision: int = 0
    """That of the queue after its last change in the commit; 0 when it was not changed."""


def session_text(session: Session) -> str:
    """Returns the body of a session: without what has a column of its own."""
    return text(msgspec.structs.replace(session.without_first_words(), archived_at=None))


def text(value: msgspec.Struct) -> str:
    """Returns a value as the JSON text of a body."""
    return _encode_json(value).decode()


def microseconds(at: datetime) -> int:
    """Returns a time as the database has it: microseconds since 1970."""
    return round(at.timestamp() * 1_000_000)
