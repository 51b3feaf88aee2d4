"""Turns as rows. Runs inside the writer's transaction."""

from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.errors import IdTaken
from turnwire.ports.commit import PutTurn
from turnwire.storage.sqlite.writing.unit import Unit, text

_KEEPING_SETTINGS = """
UPDATE turns SET ended = ?, body = json_patch(json_patch('{}', json_object(
    'tools', json_extract(body, '$.tools'), 'system', json_extract(body, '$.system')
)), ?) WHERE turn_id = ? RETURNING length(CAST(body AS BLOB))
"""
"""The inner patch leaves out what the stored turn does not have."""


def put_turn(unit: Unit, change: PutTurn) -> None:
    """Writes a turn, and counts its bytes.

    It is looked up first: that costs less than a statement which inserts or updates and tells what was there before.

    Raises:
        IdTaken: the id is that of a turn of another session.
    """
    turn = change.turn.outline() if change.keeps_settings else change.turn
    db, session, body = unit.db, unit.session.id, text(turn)
    new_size = len(body.encode())
    has_ended = turn.status is TurnStatus.ENDED
    query = "SELECT session, start_sequence, length(CAST(body AS BLOB)) FROM turns WHERE turn_id = ?"
    owner, start, size = db.execute(query, (turn.turn_id,)).fetchone() or (None, 0, 0)
    if owner is None:
        insert = "INSERT INTO turns (turn_id, session, ended, body, first_sequence) VALUES (?, ?, ?, ?, ?)"
        db.execute(insert, (turn.turn_id, session, has_ended, body, unit.session.head_sequence + 1))
    elif owner != session:
        raise IdTaken.of("turn", turn.turn_id)
    elif change.keeps_settings:
        (new_size,) = db.execute(_KEEPING_SETTINGS, (has_ended, body, turn.turn_id)).fetchone()
    else:
        db.execute("UPDATE turns SET ended = ?, body = ? WHERE turn_id = ?", (has_ended, body, turn.turn_id))
    unit.turn_starts[turn.turn_id] = start
    unit.added_bytes += new_size - size
