"""Keeps the rows of open calls in step with the calls, in the commits that change these."""

from collections.abc import Sequence

from turnwire.domain.conversation.messages import Part, ToolUse
from turnwire.storage.sqlite.writing.unit import Unit, microseconds


def file_calls(unit: Unit, message_row: int, calls: Sequence[tuple[Part, ToolUse]]) -> None:
    """Adds and removes the rows of a message's calls. Writes nothing of calls that stay as they were."""
    query = "SELECT part_index FROM open_calls WHERE message = ?"
    filed = {index for (index,) in unit.db.execute(query, (message_row,))}
    wanted = {part.index: (part.part_id, call) for part, call in calls if call.awaits_client}
    unit.db.executemany(
        "DELETE FROM open_calls WHERE message = ? AND part_index = ?",
        [(message_row, index) for index in sorted(filed - wanted.keys())],
    )
    session, tenant = unit.session.id, unit.session.tenant
    unit.db.executemany(
        "INSERT INTO open_calls (message, part_index, session, tenant, tool, tool_call_id, since_us)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (message_row, index, session, tenant, call.name, part_id, microseconds(call.started_at))
            for index, (part_id, call) in wanted.items()
            if index not in filed and call.started_at is not None
        ],
    )
