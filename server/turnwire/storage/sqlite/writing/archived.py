"""Archived sessions: marking them, and its event. Runs inside the writer's transaction."""

from turnwire.domain.conversation.events import SessionUpdated, SessionView
from turnwire.ports.commit import Commit, MarkArchived, NewEvent
from turnwire.storage.sqlite.reading.rows import SESSION_COLUMNS, session_of
from turnwire.storage.sqlite.writing.unit import Unit, microseconds


def mark_archived(unit: Unit, change: MarkArchived, commit: Commit) -> None:
    """Marks the commit's session; see `ports.commit.MarkArchived`. Does nothing when it is marked so already."""
    if change.is_archived == bool(unit.archived_at_us):
        return
    unit.archived_at_us = microseconds(commit.at) if change.is_archived else 0
    unit.marked = change
    update = "UPDATE sessions SET archived = ?, archived_at_us = ? WHERE id = ?"
    unit.db.execute(update, (change.is_archived, unit.archived_at_us, unit.session.id))


def mark_events(unit: Unit, commit: Commit) -> tuple[NewEvent, ...]:
    """Returns the event of a mark that was changed, after the other events of the commit."""
    change = unit.marked
    if change is None:
        return ()
    row = unit.db.execute(f"SELECT {SESSION_COLUMNS} FROM sessions WHERE id = ?", (unit.session.id,)).fetchone()
    body, head, queue_revision, _, *columns = row
    session = session_of(body, head, queue_revision, microseconds(commit.at), *columns)
    view = SessionView(session, change.active_turn_id, change.queue, change.open_requests)
    return (NewEvent(SessionUpdated(view)),)
