"""Decides how steps and turns end, by messages and errors alone."""

import hashlib
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


class Repetitions:
    """Counts how many steps in a row called the same tools with the same arguments and got the same results.

    Keeps a digest of the newest step alone, so a restart begins the count anew.
    """

    def __init__(self, max_times: int) -> None:
        """Takes the number of equal steps in a row that ends a turn."""
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
