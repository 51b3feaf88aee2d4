"""Tool results that arrive as separate messages: a result that answers a known call is also shown with that call."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from turnwire.core.ending import UNANSWERED_CALL, settle_calls
from turnwire.core.tools.results import CallResult
from turnwire.domain.conversation.messages import Message, Part, ToolResult, ToolStatus, ToolUse
from turnwire.domain.errors import InvalidRequest, ToolCallNotFound
from turnwire.ports.commit import NewEvent, Work


def name_calls(message: Message, history: Sequence[Message]) -> Message:
    """Adds the provider's call id to results that name their call by its part id.

    Raises:
        ToolCallNotFound: no tool call of the conversation has the part id.
        InvalidRequest: both ids are given and belong to different calls.
    """
    calls = {part.part_id: call for caller in history for part, call in caller.tool_calls()}
    parts = []
    for part in message.parts:
        named = part
        if isinstance(result := part.content, ToolResult) and result.tool_call_id:
            call = calls.get(result.tool_call_id)
            if call is None:
                raise ToolCallNotFound(result.tool_call_id)
            if result.call_id not in ("", call.call_id):
                field = f"parts[{part.index}].tool_result.call_id"
                raise InvalidRequest.of(field, f"is not the provider's id of tool call {result.tool_call_id!r}")
            named = msgspec.structs.replace(part, content=msgspec.structs.replace(result, call_id=call.call_id))
        parts.append(named)
    return msgspec.structs.replace(message, parts=tuple(parts))


def fold_results(message: Message, history: Sequence[Message], now: datetime) -> tuple[Message, Work]:
    """Folds the results of a TOOL_RESULT message into the calls that they answer.

    A message whose results answer no unanswered call at all is unchanged and shown by itself.

    Args:
        message: The message. A result answers the call with its part id or, without that, one with its call_id.
        history: The messages whose calls may be answered, oldest first; later ones are preferred.
        now: When the results arrived.

    Returns:
        The message, and the work that stores the results in the calls. A folded message names the assistant message
            that it answers, and each of its results names the part of its call.

    Raises:
        InvalidRequest: one result answers an unanswered call, and another answers none, or one of another message: the
            message could be shown with neither.
    """
    results = [part.content for part in message.parts if isinstance(part.content, ToolResult)]
    unfit = None
    for caller in reversed(history):
        answered = [_answered_part(result, caller) for result in results]
        parts = [part for part in answered if part is not None]
        if len({part.index for part in parts}) == len(results):
            return _fold(message, caller, list(zip(parts, results, strict=True)), now)
        if parts and unfit is None:
            unfit = _unfit(answered)
    if unfit is not None:
        text = (
            "answers no open call of the answer that the other results are for: append the results of one answer"
            " together, each once, and others in a message of their own"
        )
        raise InvalidRequest.of(f"parts[{unfit}].tool_result", text)
    return message, Work()


def _unfit(answered: Sequence[Part | None]) -> int:
    """Returns the index of the first result that answers no call, or one that an earlier result answers."""
    seen = set[int]()
    for index, part in enumerate(answered):
        if part is None or part.index in seen:
            return index
        seen.add(part.index)
    raise ValueError("every result answers a call of its own")


def is_unanswered(call: ToolUse) -> bool:
    """Returns whether a call has no result of its own: it waits, was cancelled, or its turn ended first."""
    return not call.status.settled or call.status is ToolStatus.CANCELLED or call.error == UNANSWERED_CALL


def _answered_part(result: ToolResult, caller: Message) -> Part | None:
    """Returns the unanswered call of a message that a result answers."""
    for part, call in caller.tool_calls():
        named = part.part_id == result.tool_call_id if result.tool_call_id else call.call_id == result.call_id != ""
        if named and is_unanswered(call):
            return part
    return None


def _output_of(result: ToolResult) -> str:
    """Returns the output that a result gives to its call, which has no exit code of its own."""
    if not result.exit_code:
        return result.output
    code = f"[exit code {result.exit_code}]"
    return f"{code}\n{result.output}" if result.output else code


def _fold(
    message: Message, caller: Message, pairs: list[tuple[Part, ToolResult]], now: datetime
) -> tuple[Message, Work]:
    settled = {}
    for part, result in pairs:
        if isinstance(part.content, ToolUse):
            cleared = msgspec.structs.replace(part.content, error=None)
            call = CallResult(output=_output_of(result), is_error=result.is_error).apply_to(cleared)
            settled[part.index] = msgspec.structs.replace(call, finished_at=now)
    caller, work = settle_calls(caller, settled, now)
    # without the turn's id: the turn is over, and turn_ended is its last event
    without_turn = Work(work.changes, tuple(NewEvent(event.kind) for event in work.events))
    call_ids = iter([part.part_id for part, _ in pairs])
    parts = tuple(
        msgspec.structs.replace(part, content=msgspec.structs.replace(part.content, tool_call_id=next(call_ids)))
        for part in message.parts
        if isinstance(part.content, ToolResult)
    )
    return msgspec.structs.replace(message, parts=parts, answers_message_id=caller.message_id), without_turn
