"""Keeps the rows of open calls in step with the calls, in the commits that change these."""

from turnwire.domain.conversation.messages import ToolUse
from turnwire.storage.sqlite.writing.unit import Unit, microseconds

IS_FILED = "EXISTS (SELECT 1 FROM open_calls WHERE part = parts.id)"
"""Whether a part has its row."""


def file_call(unit: Unit, part: int, part_id: str, call: ToolUse, *, is_filed: bool) -> None:
    """Adds or removes the row of a call. Costs nothing for a call that stays as it was.

    Args:
        unit: The commit.
        part: Row of the part that holds the call, which is written already.
        part_id: Its id.
        call: The call.
        is_filed: Whether it has a row.
    """
    if call.awaits_client == is_filed:
        return
    if is_filed:
        unit.db.execute("DELETE FROM open_calls WHERE part = ?", (part,))
    elif call.started_at is not None:
        values = (part, unit.session.id, unit.session.tenant, call.name, part_id, microseconds(call.started_at))
        unit.db.execute(
            "INSERT INTO open_calls (part, session, tenant, tool, tool_call_id, since_us) VALUES (?, ?, ?, ?, ?, ?)",
            values,
        )
