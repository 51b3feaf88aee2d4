"""Decides how steps and turns end: pure functions of messages and errors."""

import itertools
from collections.abc import Sequence

import msgspec

from turnwire.core.ending.closing import Ending
from turnwire.core.turns.resuming import has_next_step
from turnwire.domain.conversation.messages import Failure, FinishReason, Message, ToolUse
from turnwire.domain.errors import DomainError, ProviderContextFull, ProviderError, ProviderStreamCut
from turnwire.ports.provider import StepFinished

MAX_PAUSES = 10
"""How often one turn continues by itself after the provider paused its answer."""


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
        return ending_of_error(ProviderStreamCut("the provider's stream ended without its end marker"))
    reason = finished.reason
    if reason is FinishReason.STOP and any(isinstance(part.content, ToolUse) for part in message.parts):
        reason = FinishReason.TOOL_USE  # some servers say "stop" beside complete calls
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


def ending_of_repetition(steps: Sequence[Message], max_times: int) -> Ending | None:
    """Returns the end of a turn whose model keeps repeating the same calls; None while it may continue.

    Args:
        steps: The messages of the turn's steps, oldest first, with the results of their calls; at least one.
        max_times: The number of equal steps in a row that ends the turn.
    """
    if steps[-1].finish_reason is FinishReason.PAUSED:
        return None
    times = repetitions(steps)
    if times < max_times:
        return None
    names = ", ".join(sorted({call.name for _, call in steps[-1].tool_calls()}))
    message = f"the model called {names} {times} times in a row with the same arguments and got the same result"
    return Ending(FinishReason.ERROR, Failure("TOOL_CALL_REPEATED", message))


def is_paused_too_often(steps: Sequence[Message]) -> bool:
    """Returns whether the newest step was paused and exceeds MAX_PAUSES."""
    pauses = sum(step.finish_reason is FinishReason.PAUSED for step in steps)
    return steps[-1].finish_reason is FinishReason.PAUSED and pauses > MAX_PAUSES


def repetitions(steps: Sequence[Message]) -> int:
    """Returns how many of the newest steps called the same tools with the same arguments and got the same results."""
    calls = _calls_of(steps[-1])
    return sum(1 for _ in itertools.takewhile(lambda step: calls and _calls_of(step) == calls, reversed(steps)))


def _calls_of(message: Message) -> list[tuple[str, str, str | None, str | None]]:
    return [(call.name, call.input_json, call.output, call.error) for _, call in message.tool_calls()]
