"""Turns as rows. Runs inside the writer's transaction."""

import msgspec

from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.errors import IdTaken
from turnwire.ports.commit import PutTurn
from turnwire.storage.sqlite.writing.unit import TurnWrite, Unit, text

_KEEPING_SETTINGS = """
UPDATE turns SET ended = ?, body = json_patch(json_patch('{}', json_object(
    'tools', json_extract(body, '$.tools'), 'system', json_extract(body, '$.system')
)), ?) WHERE turn_id = ? RETURNING length(CAST(body AS BLOB))
"""
"""The inner patch leaves out what the stored turn does not have."""


def put_turn(unit: Unit, change: PutTurn) -> None:
    """Takes a turn for `add_turns`, which its commit calls with the numbers of its events, and counts its bytes.

    It is looked up first: that costs less than a statement which inserts or updates and tells what was there before.

    Raises:
        IdTaken: the id is that of a turn of another session.
    """
    turn = change.turn.header() if change.keeps_settings else change.turn
    body = text(msgspec.structs.replace(turn, turn_id="", session_id=""))  # which columns say
    if turn.turn_id in unit.turns:
        add_turns(unit)
        unit.rows.write(unit.db)
    db, session = unit.db, unit.session.id
    new_size = len(body.encode())
    has_ended = turn.status is TurnStatus.ENDED
    query = "SELECT session, start_sequence, end_sequence, length(CAST(body AS BLOB)) FROM turns WHERE turn_id = ?"
    owner, start, end, size = db.execute(query, (turn.turn_id,)).fetchone() or (None, 0, 0, 0)
    if owner is not None and owner != session:
        raise IdTaken.of("turn", turn.turn_id)
    if owner is None:
        key: tuple[object, ...] = (turn.turn_id, session, unit.session.head_sequence + 1)
        unit.turns[turn.turn_id] = TurnWrite(True, (has_ended, body), start, end, key)
    elif change.keeps_settings:
        (new_size,) = db.execute(_KEEPING_SETTINGS, (has_ended, body, turn.turn_id)).fetchone()
    else:
        unit.turns[turn.turn_id] = TurnWrite(False, (has_ended, body), start, end, (turn.turn_id,))
    unit.turn_starts[turn.turn_id] = start
    unit.added_bytes += new_size - size


def note_start(unit: Unit, turn_id: str, sequence: int) -> None:
    """Gives a turn the number of the event that starts it."""
    unit.turn_starts[turn_id] = sequence
    if (write := unit.turns.get(turn_id)) is not None:
        unit.turns[turn_id] = write._replace(start_sequence=sequence)
    else:
        unit.db.execute("UPDATE turns SET start_sequence = ? WHERE turn_id = ?", (sequence, turn_id))


def note_end(unit: Unit, turn_id: str, sequence: int) -> None:
    """Gives a turn the number of the event that ends it."""
    if (write := unit.turns.get(turn_id)) is not None:
        unit.turns[turn_id] = write._replace(end_sequence=sequence)
    else:
        unit.db.execute("UPDATE turns SET end_sequence = ? WHERE turn_id = ?", (sequence, turn_id))


def add_turns(unit: Unit) -> None:
    """Adds the turns that were taken to the rows of the transaction."""
    for is_new, values, start, end, key in unit.turns.values():
        (unit.rows.new_turns if is_new else unit.rows.turns).append((*values, start, end, *key))
    unit.turns.clear()
