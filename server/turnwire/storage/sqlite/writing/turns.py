"""Turns as rows. Runs inside the writer's transaction."""

from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.errors import StorageError
from turnwire.storage.sqlite.writing.unit import Unit, text


def put_turn(unit: Unit, turn: Turn) -> None:
    """Writes a turn, and counts its bytes.

    It is looked up first: that costs less than a statement which inserts or updates and tells what was there before.

    Raises:
        StorageError: the id is that of a turn of another session.
    """
    db, session, body = unit.db, unit.session.id, text(turn)
    has_ended = turn.status is TurnStatus.ENDED
    query = "SELECT session, start_sequence, length(CAST(body AS BLOB)) FROM turns WHERE turn_id = ?"
    owner, start, size = db.execute(query, (turn.turn_id,)).fetchone() or (None, 0, 0)
    if owner is None:
        insert = "INSERT INTO turns (turn_id, session, ended, body, first_sequence) VALUES (?, ?, ?, ?, ?)"
        db.execute(insert, (turn.turn_id, session, has_ended, body, unit.session.head_sequence + 1))
    elif owner == session:
        db.execute("UPDATE turns SET ended = ?, body = ? WHERE turn_id = ?", (has_ended, body, turn.turn_id))
    else:
        raise StorageError(f"turn {turn.turn_id} belongs to another session", {"id": turn.turn_id})
    unit.turn_starts[turn.turn_id] = start
    unit.added_bytes += len(body.encode()) - size
