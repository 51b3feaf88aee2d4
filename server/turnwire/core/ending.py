"""Pure functions that end steps, messages and turns: they return what to store and which events to publish.

The same code ends complete answers, aborted and cut answers, and after a crash the answers of the dead process. What
steps, summaries and turns add to the account of their tenant belongs to the commit that stores the end, so it is added
exactly once, however often that commit is tried. Host messages say for people what happened; models never see them.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from turnwire.core.settings import CoreSettings
from turnwire.domain.accounts import Spending
from turnwire.domain.conversation.events import (
    DurableKind,
    MessageAdded,
    MessageFinished,
    PartFinished,
    ToolCallUpdated,
    TurnEnded,
)
from turnwire.domain.conversation.messages import (
    Failure,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    Part,
    PartStatus,
    Text,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.errors import DomainError, ProviderContextFull, ProviderError, ProviderStreamCut
from turnwire.domain.ids import IdMaker
from turnwire.domain.money import Usage, add_usage
from turnwire.ports.commit import AddSpending, NewEvent, PutMessage, PutTurn, Work
from turnwire.ports.provider import StepFinished

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
    """The usage of several messages, summed up."""

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

    All in one write, because each write encodes the display form of the complete message.
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
) -> Work:
    """Ends a turn: returns work that closes its open messages and calls, with the turn's own event last.

    Its tools and its system prompt stay as they are stored.

    Args:
        turn: The turn, in any status but ENDED; may be a header.
        messages: Its messages in order.
        ending: Why it ended.
        now: When it ended.
        further: More work for the same commit; placed before the turn's own event.
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
        turn.header(),
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
    return work + Work((PutTurn(over, keeps_settings=True),), (NewEvent(TurnEnded(over), turn.turn_id),))


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


_NOTES = {
    FinishReason.ABORTED: ("turn_aborted", "The turn was aborted."),
    FinishReason.INTERRUPTED: ("turn_interrupted", "The answer was cut off."),
    FinishReason.ERROR: ("turn_failed", "The turn failed."),
    FinishReason.CONTEXT_FULL: ("context_full", "The conversation does not fit the model's context window."),
    FinishReason.MAX_STEPS: ("max_steps", "The turn ended at its limit of steps."),
    FinishReason.BUDGET: ("budget_exhausted", "The turn ended because its budget is used up."),
}
"""Endings that are not normal: a word for programs, a sentence for people."""


def note_ending(turn: Turn, ending: Ending, now: datetime, settings: CoreSettings, new_id: IdMaker) -> Work:
    """Returns the work that records in the conversation how a turn ended; empty for a normal end."""
    note_of = _NOTES.get(ending.finish_reason)
    if note_of is None:
        return Work()
    event, sentence = note_of
    facts = {"event": event}
    if ending.failure is not None:
        facts["reason"] = ending.failure.reason
        sentence = f"{sentence[:-1]}: {ending.failure.message}"
    return note(turn, sentence, facts, now, settings=settings, new_id=new_id)


def note(
    turn: Turn, text: str, facts: Mapping[str, object], now: datetime, *, settings: CoreSettings, new_id: IdMaker
) -> Work:
    """Returns the work that adds a HOST message to a turn's conversation; empty if the configuration turns them off.

    Args:
        turn: The turn that it is about.
        text: A sentence for people.
        facts: Facts for programs; become the message's metadata.
        now: When it happened.
        settings: Say whether such messages are stored.
        new_id: Makes the ids of the message and its part.
    """
    if not settings.host_messages:
        return Work()
    message = Message(
        message_id=new_id("msg"),
        session_id=turn.session_id,
        type=MessageType.HOST,
        status=MessageStatus.COMPLETE,
        created_at=now,
        updated_at=now,
        parts=(Part(part_id=new_id("prt"), index=0, content=Text(text)),),
        turn_id=turn.turn_id,
        metadata_json=json.dumps(facts),
    )
    return Work((PutMessage(message),), (NewEvent(MessageAdded(message), turn.turn_id),))


def spent_by_call(turn: Turn, message: Message, now: datetime) -> Work:
    """Returns the work that adds an ended step, or a summary, to the account.

    Args:
        turn: The turn that called the model.
        message: The ended message, with its cost or its estimate.
        now: When it ended.
    """
    run = message.model_run
    estimate, usage, cost = message.estimate, message.usage, message.cost_pico_usd
    if estimate is not None:
        usage, cost = estimate.usage, estimate.cost_pico_usd
    has_answer = usage is not None or bool(message.parts)
    spending = Spending(
        tenant=turn.tenant,
        subject=turn.subject,
        session_id=turn.session_id,
        provider_id=turn.model.provider_id if run is None else run.provider_id,
        model_id=turn.model.model_id if run is None else run.model_requested,
        at=now,
        usage=usage,
        cost_pico_usd=cost,
        steps=1,
        steps_without_price=int(has_answer and cost is None),
        estimated_steps=int(estimate is not None),
    )
    return Work((AddSpending(spending),))


def spent_by_turn(turn: Turn, now: datetime) -> Work:
    """Returns the work that counts an ended turn; empty for one that never started."""
    if turn.status is TurnStatus.QUEUED:
        return Work()
    spending = Spending(
        tenant=turn.tenant,
        subject=turn.subject,
        session_id=turn.session_id,
        provider_id=turn.model.provider_id,
        model_id=turn.model.model_id,
        at=now,
        turns=1,
    )
    return Work((AddSpending(spending),))


MAX_PAUSES = 10
"""Maximum number of times that one turn continues by itself after the provider paused its answer."""


def step_ending(finished: StepFinished | None, failure: ProviderError | None, message: Message) -> Ending:
    """Returns how a step ended.

    Args:
        finished: The provider's end marker; None when the answer had none.
        failure: The error that ended the answer early; None when there was none.
        message: The answer.
    """
    if failure is not None:
        word = finished.provider_reason if finished is not None else ""
        return msgspec.structs.replace(ending_of_error(failure), provider_finish_reason=word)
    if finished is None:
        return ending_of_error(ProviderStreamCut("the answer of the provider ended without its end marker"))
    reason = finished.reason
    if reason in (FinishReason.STOP, FinishReason.TOOL_USE):
        # some servers say "stop" with complete calls, or "tool_calls" without any, and so again at each step
        has_calls = any(isinstance(part.content, ToolUse) for part in message.parts)
        reason = FinishReason.TOOL_USE if has_calls else FinishReason.STOP
    return Ending(reason, None, finished.provider_reason)


def ending_of_error(error: DomainError) -> Ending:
    """Returns the ending that an error gives a step or a turn."""
    failure = Failure.of(error)
    if isinstance(error, ProviderStreamCut):
        return Ending(FinishReason.INTERRUPTED, failure)
    if isinstance(error, ProviderContextFull):
        return Ending(FinishReason.CONTEXT_FULL, failure)
    return Ending(FinishReason.ERROR, failure)


def ending_after(steps: Sequence[Message]) -> Ending | None:
    """Returns the end of a turn whose newest step is its last; None when another step follows.

    Args:
        steps: The ended messages of the turn's steps, oldest first; at least one.
    """
    newest = steps[-1]
    if has_next_step(newest) and not is_paused_too_often(steps):
        return None
    return Ending(newest.finish_reason or FinishReason.ERROR, newest.failure)


def has_next_step(step: Message) -> bool:
    """Returns whether another step follows this ended step."""
    return step.status is MessageStatus.COMPLETE and step.finish_reason in (FinishReason.TOOL_USE, FinishReason.PAUSED)


class Repetitions:
    """Counts consecutive steps that called the same tools with the same arguments and got the same results.

    Keeps only a digest of the newest step, so a restart begins the count anew.
    """

    def __init__(self, max_times: int) -> None:
        """Takes the number of consecutive equal steps that ends a turn."""
        self._max_times = max_times
        self._times = 0
        self._newest = b""

    def add(self, step: Message) -> Ending | None:
        """Counts a step, with the results of its calls. Returns the end of its turn; None while it may continue."""
        digest = _digest_of_calls(step)
        self._times = self._times + 1 if digest == self._newest else 1
        self._newest = digest
        calls = step.tool_calls()
        if self._times < self._max_times or not calls or step.finish_reason is FinishReason.PAUSED:
            return None
        names, times = ", ".join(sorted({call.name for _, call in calls})), self._times
        message = f"the model called {names} {times} times in a row with the same arguments and got the same result"
        return Ending(FinishReason.ERROR, Failure("TOOL_CALL_REPEATED", message))


def is_paused_too_often(steps: Sequence[Message]) -> bool:
    """Returns whether the newest step was paused and exceeds MAX_PAUSES."""
    pauses = sum(step.finish_reason is FinishReason.PAUSED for step in steps)
    return steps[-1].finish_reason is FinishReason.PAUSED and pauses > MAX_PAUSES


def _digest_of_calls(step: Message) -> bytes:
    digest = hashlib.sha256()
    for _, call in step.tool_calls():
        for text in (call.name, call.input_json, call.output, call.error):
            digest.update(b"-" if text is None else b"%d:" % len(text))
            digest.update((text or "").encode())
    return digest.digest()
