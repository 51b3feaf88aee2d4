"""Stored turns that no process runs: decides which continue after a restart, and ends the others.

A turn continues from its last step that ended normally, whether or not its tool calls have results. A turn whose answer
was cut in the middle ends, because the parts of two attempts are never joined. A turn whose model had not begun to
answer calls the model again.
"""

import contextlib
from collections.abc import Iterable
from functools import partial

import msgspec
import structlog
from msgspec import Struct

from turnwire.core.answer.costs import with_cost, with_estimate
from turnwire.core.computing import compute
from turnwire.core.ending import Ending, end_turn, ended_turns, has_next_step, note_ending
from turnwire.core.environment import Environment
from turnwire.core.tools.open_calls import ending_work
from turnwire.core.tools.permission_requests import closing_work
from turnwire.domain.conversation.events import SessionStatusChanged
from turnwire.domain.conversation.messages import Failure, FinishReason, Message, MessageStatus, MessageType
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice, PermissionRequest
from turnwire.domain.conversation.questions import HeldQuestion
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import StorageFull
from turnwire.ports.commit import NewEvent, PutTurn, Work
from turnwire.ports.pages import Page
from turnwire.ports.provider import Providers

log = structlog.get_logger()


MAX_RESUMES = 3
"""Maximum number of consecutive resumptions of a turn without a completed step, so that it does not crash the server
again and again. Turns with open calls are exempt, because waiting for a person is no reason to give up."""


class ResumePoint(Struct, frozen=True):
    """The point from which a turn continues."""

    steps: tuple[Message, ...]
    """Messages of the ended steps, oldest first. The last one has its parts, and its calls may be open."""
    open_message: Message | None
    """The stored message of a step whose model had not begun to answer; None when there is none."""
    permissions: tuple[PermissionRequest, ...] = ()
    """Open requests of the last step's calls."""
    summaries: tuple[Message, ...] = ()
    """Summaries of older messages that this turn made."""
    questions: tuple[HeldQuestion, ...] = ()
    """Questions of the last step's calls that are open, or whose call has yet to resume."""

    @property
    def waits_for_calls(self) -> bool:
        """True when calls of the last step have no result yet."""
        return bool(self.steps) and any(not call.status.settled for _, call in self.steps[-1].tool_calls())


def resume_point(
    turn: Turn,
    messages: Iterable[Message],
    permissions: Iterable[PermissionRequest],
    questions: Iterable[HeldQuestion] = (),
) -> ResumePoint | None:
    """Returns the point from which a turn continues; None when it must be ended.

    Args:
        turn: A turn that was running.
        messages: All messages of the turn, oldest first, as `Store.turn_messages` returns them.
        permissions: Open permission requests of its session.
        questions: Pending questions of its session.
    """
    stored = tuple(messages)
    steps = [message for message in stored if message.type is MessageType.ASSISTANT]
    open_message = None
    if steps and steps[-1].status is MessageStatus.STREAMING:
        open_message = steps.pop()
        if open_message.parts:
            return None
    if steps and not has_next_step(steps[-1]):
        return None
    point = ResumePoint(
        tuple(steps),
        open_message,
        tuple(asked for asked in permissions if asked.turn_id == turn.turn_id),
        tuple(message for message in stored if message.compaction is not None),
        tuple(asked for asked in questions if asked.question.turn_id == turn.turn_id),
    )
    if point.waits_for_calls or turn.resumes < MAX_RESUMES or turn.steps != len(steps):
        return point
    return None


RESTARTED = Ending(FinishReason.INTERRUPTED, Failure("SERVER_RESTARTED", "the server was restarted during the turn"))


class Resumption(Struct, frozen=True):
    """A turn of an earlier process that continues, or whose end the full disk did not take."""

    turn: Turn
    """The turn as stored, with this resumption counted."""
    point: ResumePoint | None
    """None: it has to end."""
    ending: Ending = RESTARTED
    """The end that it has then."""


async def resume_or_end(
    environment: Environment, turn: Turn, *, is_newest: bool, interrupted_by: str
) -> Resumption | None:
    """Resumes or ends a turn that was running when its process died, and stores which. Returns None when it ended.

    On a full disk neither is stored, so that what is stored can be read. A resumption that is not counted counts with
    the next step; an end that is not stored is left to the session.

    Args:
        environment: Ports and settings.
        turn: The turn.
        is_newest: False when a newer turn of its session was running, because the end of this one was never stored.
        interrupted_by: The waiting message that is to end it; "" when none is.

    Raises:
        StorageError: the database cannot be read or written.
    """
    store, now = environment.store, environment.clock()
    stored = await store.turn_messages(turn.turn_id)
    permissions = (await store.of(turn.tenant).open_permissions(turn.session_id, Page())).permissions
    questions = await store.of(turn.tenant).pending_questions(turn.session_id)
    point = resume_point(turn, stored, permissions, questions) if is_newest and not interrupted_by else None
    if point is None:
        interrupted = Ending(FinishReason.ABORTED, ended_by_message_id=interrupted_by)
        ending = interrupted if interrupted_by else RESTARTED
        work = await end_stored_turn(environment, turn, ending)
        if is_newest:
            work += Work((), (NewEvent(SessionStatusChanged(False)),))
        try:
            await environment.commit(turn.tenant, turn.session_id, work, now)
        except StorageFull:
            return Resumption(turn, None, ending) if is_newest else None
        for ended in ended_turns(work):
            environment.observer.turn_ended(ended, None)
        return None
    attempts = turn.resumes if turn.steps == len(point.steps) else 0
    resumed = msgspec.structs.replace(turn, steps=len(point.steps), resumes=attempts + (not point.waits_for_calls))
    with contextlib.suppress(StorageFull):
        await environment.commit(turn.tenant, turn.session_id, Work((PutTurn(resumed),)), now)
    if point.waits_for_calls:  # it fitted before the restart
        environment.waiting_calls.hold(turn.tenant, turn.turn_id, point.steps[-1])
    log.info("turn_resumed", session_id=turn.session_id, turn_id=turn.turn_id)
    return Resumption(resumed, point)


async def end_stored_turn(environment: Environment, turn: Turn, ending: Ending) -> Work:
    """Returns the work that ends a turn that no process runs.

    Raises:
        StorageError: the database cannot be read.
    """
    now = environment.clock()
    stored = await environment.store.turn_messages(turn.turn_id)
    asked = await environment.store.of(turn.tenant).open_permissions(turn.session_id, Page())
    permissions = [permission for permission in asked.permissions if permission.turn_id == turn.turn_id]
    pending = await environment.store.of(turn.tenant).pending_questions(turn.session_id)
    further = closing_work(permissions, PermissionAnswer(PermissionChoice.CANCELLED))
    further += ending_work(one for one in pending if one.question.turn_id == turn.turn_id)
    further += note_ending(turn, ending, now, environment.settings, environment.new_id)
    priced = [_priced(message, environment.providers) for message in stored]
    return await compute(partial(end_turn, turn, priced, ending, now, further), priced)


def _priced(message: Message, providers: Providers) -> Message:
    message = with_cost(message, providers)
    if message.status is not MessageStatus.STREAMING:
        return message
    return with_estimate(message, providers, was_asked=False, is_cut=True)
