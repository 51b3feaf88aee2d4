"""Ends messages and turns: pure functions that return what to store and which events to publish.

The same code ends complete answers, aborted and cut answers, and after a crash the answers of the dead process.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from turnwire.core.ending.spending import spent_by_call, spent_by_turn
from turnwire.core.work import Work
from turnwire.domain.conversation.events import DurableKind, MessageFinished, PartFinished, ToolCallUpdated, TurnEnded
from turnwire.domain.conversation.messages import (
    Failure,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    Part,
    PartStatus,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.money import Usage, add_usage
from turnwire.ports.commit import NewEvent, PutMessage, PutTurn

CUT_CALL = "the answer ended before the call was complete; it was not run"
UNANSWERED_CALL = "the turn ended before the tool answered"


class Ending(Struct, frozen=True):
    """Why a message or a turn ended."""

    finish_reason: FinishReason
    failure: Failure | None = None
    provider_finish_reason: str = ""
    ended_by_message_id: str = ""
    """The message that ended the turn; "" when none did."""

    @property
    def status(self) -> MessageStatus:
        """The status of a message with this ending."""
        if self.finish_reason in (FinishReason.ABORTED, FinishReason.INTERRUPTED):
            return MessageStatus.INTERRUPTED
        failed = self.failure is not None or self.finish_reason is FinishReason.ERROR
        return MessageStatus.FAILED if failed else MessageStatus.COMPLETE


class Totals(Struct, frozen=True):
    """What several messages have used."""

    usage: Usage | None
    cost_pico_usd: int | None = None
    """None when any price is unknown."""
    known_cost_pico_usd: int | None = None
    """Sum of the known costs, set when only some are known and `cost_pico_usd` is therefore None."""


def close_message(message: Message, ending: Ending, now: datetime) -> tuple[Message, Work]:
    """Ends a streaming message.

    Open parts are finished, as complete or interrupted. Calls that can no longer run get a final status: cut calls
    always, complete calls unless the answer ended normally (then they wait for their results).

    Args:
        message: The message.
        ending: Why it ended.
        now: When it ended.

    Returns:
        The ended message, and the work. It writes all parts, because an earlier write may have failed.
    """
    complete = ending.status is MessageStatus.COMPLETE
    parts, kinds = [], list[DurableKind]()
    for part in message.parts:
        closed = _close_part(part, ending, now)
        parts.append(closed)
        if part.status is PartStatus.STREAMING:
            kinds.append(PartFinished(message.message_id, closed))
        elif closed is not part and isinstance(closed.content, ToolUse) and closed.content.status.settled:
            kinds.append(_call_updated(message, closed))
    ended = msgspec.structs.replace(
        message,
        parts=tuple(parts),
        status=ending.status,
        updated_at=now,
        finish_reason=ending.finish_reason,
        provider_finish_reason=ending.provider_finish_reason,
        failure=None if complete else ending.failure,
    )
    kinds.append(MessageFinished(msgspec.structs.replace(ended, parts=())))
    kinds += [_call_updated(ended, part) for part, call in ended.tool_calls() if not call.status.settled]
    work = Work(
        (PutMessage(ended),),
        tuple(NewEvent(kind, message.turn_id) for kind in kinds),
    )
    return ended, work


def settle_calls(message: Message, calls: Mapping[int, ToolUse], now: datetime) -> tuple[Message, Work]:
    """Replaces tool calls of a message, by part index, with the same calls and their results.

    All in one write, because each write encodes the display form of the whole message.
    """
    parts = list(message.parts)
    for index, call in calls.items():
        parts[index] = msgspec.structs.replace(parts[index], content=call)
    changed = msgspec.structs.replace(message, parts=tuple(parts), updated_at=now)
    events = tuple(NewEvent(_call_updated(changed, parts[index]), message.turn_id) for index in calls)
    return changed, Work((PutMessage(changed),), events)


def close_calls(message: Message, now: datetime) -> tuple[Message, Work]:
    """Ends the waiting calls of an ended message, because their turn ends. Returns the message and the work."""
    waiting = {
        part.index: _failed(call, UNANSWERED_CALL, now)
        for part, call in message.tool_calls()
        if not call.status.settled
    }
    return settle_calls(message, waiting, now) if waiting else (message, Work())


def end_turn(
    turn: Turn,
    messages: Iterable[Message],
    ending: Ending,
    now: datetime,
    further: Work | None = None,
    *,
    is_outline: bool = False,
) -> Work:
    """Ends a turn: returns work that closes its open messages and calls, with the turn's own event last.

    Args:
        turn: The turn, in any status but ENDED.
        messages: Its messages in order.
        ending: Why it ended.
        now: When it ended.
        further: More work for the same commit; placed before the turn's own event.
        is_outline: Whether `turn` is without its tools and its system prompt, which stay as they are stored.
    """
    work, ended, summaries = Work(), list[Message](), list[Message]()
    for message in messages:
        if message.type is not MessageType.ASSISTANT:
            summaries.append(message)  # of the others, only summaries have usage
            continue
        if message.status is MessageStatus.STREAMING:
            closed, one = close_message(message, ending, now)
            work += one + spent_by_call(turn, closed, now)
        else:
            closed, one = close_calls(message, now)
            work += one
        ended.append(closed)
    totals = totals_of([*summaries, *ended])
    over = msgspec.structs.replace(
        turn,
        status=TurnStatus.ENDED,
        ended_at=now,
        finish_reason=ending.finish_reason,
        ended_by_message_id=ending.ended_by_message_id,
        failure=ending.failure,
        usage=totals.usage,
        cost_pico_usd=totals.cost_pico_usd,
        known_cost_pico_usd=totals.known_cost_pico_usd,
        steps=len(ended),
    )
    work += (further or Work()) + spent_by_turn(turn, now)
    return work + Work((PutTurn(over, is_outline),), (NewEvent(TurnEnded(over), turn.turn_id),))


def ended_turns(work: Work) -> tuple[Turn, ...]:
    """Returns the turns that the work ends, as they are after it."""
    return tuple(event.kind.turn for event in work.events if isinstance(event.kind, TurnEnded))


def _close_part(part: Part, ending: Ending, now: datetime) -> Part:
    orderly = ending.status is MessageStatus.COMPLETE
    open_still = part.status is PartStatus.STREAMING
    status = (PartStatus.COMPLETE if orderly else PartStatus.INTERRUPTED) if open_still else part.status
    content = part.content
    if isinstance(content, ToolUse) and not content.status.settled:
        if orderly and ending.finish_reason is FinishReason.TOOL_USE:
            content = msgspec.structs.replace(content, started_at=now)
        else:
            content = _failed(content, CUT_CALL if open_still or orderly else UNANSWERED_CALL, now)
    if status is part.status and content is part.content:
        return part
    return msgspec.structs.replace(part, status=status, content=content)


def _failed(call: ToolUse, why: str, now: datetime) -> ToolUse:
    status = ToolStatus.CANCELLED if why == CUT_CALL else ToolStatus.ERROR
    return msgspec.structs.replace(call, status=status, error=why, permission_id="", lease=None, finished_at=now)


def _call_updated(message: Message, part: Part) -> ToolCallUpdated:
    if not isinstance(part.content, ToolUse):
        raise TypeError(f"part {part.index} of {message.message_id} is not a tool call")
    return ToolCallUpdated(message.message_id, part.part_id, part.index, part.content)


def totals_of(messages: Sequence[Message]) -> Totals:
    """Sums usage and cost. Messages without usage are ignored."""
    usage: Usage | None = None
    costs: list[int | None] = []
    for message in messages:
        usage = add_usage(usage, message.usage)
        if message.usage is not None:
            costs.append(message.cost_pico_usd)
    known = [cost for cost in costs if cost is not None]
    if not known:
        return Totals(usage)
    complete = len(known) == len(costs)
    return Totals(usage, sum(known) if complete else None, None if complete else sum(known))
