"""Tool results that come as messages of their own: those that answer a known call are shown with it."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from turnwire.core.ending.closing import UNANSWERED_CALL, settle_calls
from turnwire.core.tools.results import CallResult
from turnwire.core.work import Work
from turnwire.domain.conversation.messages import Message, Part, ToolResult, ToolStatus, ToolUse
from turnwire.ports.commit import NewEvent


def fold_results(message: Message, history: Sequence[Message], now: datetime) -> tuple[Message, Work]:
    """Folds the results of a TOOL_RESULT message into the calls that they answer.

    Only when every result answers an unanswered call of one and the same assistant message. Otherwise the message stays
    as it is and is shown by itself.

    Returns:
        The message, with the assistant message as its parent when it was folded, and the work that settles the calls.
    """
    results = [part.content for part in message.parts if isinstance(part.content, ToolResult)]
    distinct = len({result.call_id for result in results}) == len(results)
    for caller in reversed(history):
        open_calls = {call.call_id: part for part, call in caller.tool_calls() if call.call_id and is_unanswered(call)}
        if distinct and all(result.call_id in open_calls for result in results):
            return _fold(message, caller, [(open_calls[r.call_id], r) for r in results], now)
    return message, Work()


def is_unanswered(call: ToolUse) -> bool:
    """Tells whether a call never got a result of its own: it waits, was cancelled, or its turn ended before."""
    return not call.status.settled or call.status is ToolStatus.CANCELLED or call.error == UNANSWERED_CALL


def _fold(
    message: Message, caller: Message, pairs: list[tuple[Part, ToolResult]], now: datetime
) -> tuple[Message, Work]:
    settled = {}
    for part, result in pairs:
        if isinstance(part.content, ToolUse):
            cleared = msgspec.structs.replace(part.content, error=None)
            call = CallResult(output=result.output, is_error=result.is_error).apply_to(cleared)
            settled[part.index] = msgspec.structs.replace(call, finished_at=now)
    caller, work = settle_calls(caller, settled, now)
    # the calls' turn is over, and turn_ended is its last event
    told = Work(work.changes, tuple(NewEvent(event.kind) for event in work.events))
    return msgspec.structs.replace(message, answers_message_id=caller.message_id), told
