"""The waiting messages of a session: their order, and their events. Runs inside the writer's transaction."""

from collections.abc import Iterable

from turnwire.domain.conversation.events import QueueChanged
from turnwire.domain.conversation.turns import BusyPolicy, QueueEntry
from turnwire.domain.errors import StaleVersion
from turnwire.storage.sqlite.writing.unit import Unit

_WAITING = "FROM messages WHERE session = ? AND on_path = 1 AND queued = 1 ORDER BY place"


def order_queue(unit: Unit, message_ids: Iterable[str]) -> None:
    """Orders the waiting messages; see `ports.commit.OrderQueue`."""
    rows = unit.db.execute(f"SELECT id, place, message_id {_WAITING}", (unit.session.id,)).fetchall()
    order = {message_id: number for number, message_id in enumerate(message_ids)}
    wanted = sorted(rows, key=lambda row: order.get(row[2], -1))
    moved = [(old[1], row[0]) for old, row in zip(rows, wanted, strict=True) if row[0] != old[0]]
    # first out of the way: no two messages may have one place, not even for a moment
    unit.db.executemany("UPDATE messages SET place = -place WHERE id = ?", [(row,) for _, row in moved])
    unit.db.executemany("UPDATE messages SET place = ? WHERE id = ?", moved)


def require_revision(unit: Unit, revision: int) -> None:
    """Raises StaleVersion unless the queue has this revision."""
    (current,) = unit.db.execute("SELECT queue_revision FROM sessions WHERE id = ?", (unit.session.id,)).fetchone()
    if current != revision:
        raise StaleVersion(f"the queue has revision {current}", {"currentRevision": str(current)})


def queue_changed(unit: Unit, known: Iterable[QueueEntry]) -> QueueChanged:
    """Counts a change of the queue, and returns what its event says: the messages that wait now, as they are stored.

    Args:
        unit: The commit, after its changes.
        known: Entries whose policy need not be read.
    """
    update = "UPDATE sessions SET queue_revision = queue_revision + 1 WHERE id = ? RETURNING queue_revision"
    (unit.queue_revision,) = unit.db.execute(update, (unit.session.id,)).fetchone()
    policies = {entry.turn_id: entry.policy for entry in known}
    waiting = unit.db.execute(f"SELECT message_id, turn_id {_WAITING}", (unit.session.id,)).fetchall()
    entries = (QueueEntry(message, turn, policies.get(turn) or _policy(unit, turn)) for message, turn in waiting)
    return QueueChanged(tuple(entries), unit.queue_revision)


def _policy(unit: Unit, turn_id: str) -> BusyPolicy:
    unit.rows.write(unit.db)  # it may be a turn of this commit
    row = unit.db.execute(
        "SELECT json_extract(body, '$.busy_policy') FROM turns WHERE turn_id = ?", (turn_id,)
    ).fetchone()
    return BusyPolicy(row[0]) if row is not None and row[0] is not None else BusyPolicy.QUEUE
