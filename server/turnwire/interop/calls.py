"""Results in the calls that asked for them, which is how a session stores both."""

from datetime import datetime

import msgspec

from turnwire.domain.conversation.messages import ToolResult, ToolStatus, ToolUse


def with_result(call: ToolUse, result: ToolResult, at: datetime, arrived: datetime | None = None) -> ToolUse:
    """Returns a call with its result.

    Args:
        call: The call.
        result: Its result; of an error the output says what went wrong.
        at: When the call was complete.
        arrived: When its result arrived; None for the same moment.
    """
    return msgspec.structs.replace(
        call,
        status=ToolStatus.ERROR if result.is_error else ToolStatus.SUCCESS,
        output=None if result.is_error else result.output,
        error=result.output if result.is_error else None,
        started_at=at,
        finished_at=at if arrived is None else arrived,
    )
