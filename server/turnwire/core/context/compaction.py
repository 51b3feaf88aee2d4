"""Compaction: a model summarises older messages when a conversation no longer fits the context window.

The summary is stored as a message of its own; the messages that it covers stay and can be read. `assembly` decides from
the stored messages alone what is sent in their place.
"""

import asyncio
import contextlib
from asyncio import Future
from collections.abc import Sequence
from functools import partial

import msgspec
import structlog
from msgspec import Struct

from turnwire.core.computing import compute
from turnwire.core.context.compaction_plan import Allowance, Cut, allowance, choose_cut
from turnwire.core.context.draft import Draft
from turnwire.core.context.summaries import Summariser
from turnwire.core.conversation.landmarks import standing_summary
from turnwire.core.ending.host_messages import note
from turnwire.core.ending.spending import spent_by_call
from turnwire.core.environment import Environment
from turnwire.core.work import Work
from turnwire.domain.conversation.events import CompactionStarted, ContextCompacted, MessageAdded
from turnwire.domain.conversation.file_forms import is_text
from turnwire.domain.conversation.messages import Compaction, Message, MessageStatus, MessageType, Part, Text
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import ProviderError, UnknownModel
from turnwire.domain.repairs import RepairReason
from turnwire.ports.commit import Committed, NewEvent, PutMessage

log = structlog.get_logger()


class Plan(Struct, frozen=True):
    """What to summarise, and the division of the window that requires it."""

    cut: Cut
    allowed: Allowance


async def plan_before_step(environment: Environment, draft: Draft) -> Plan | None:
    """Returns what to summarise before a request is sent; None when it fits, or compaction is off or would not help.

    A model with an unknown window gets the whole request; its provider refuses one that is too long.

    Raises:
        UnknownModel: the configuration no longer has this model, which can happen after a restart.
        StorageError: the session could not be read.
    """
    with contextlib.suppress(ProviderError):  # the model call reports why the model cannot be asked
        environment.providers.check(draft.turn.model)
        await environment.providers.get(draft.turn.model.provider_id)
    window = environment.providers.context_window_tokens(draft.turn.model)
    if window is None:
        return None
    allowed = allowance(window, draft.turn, environment.settings.compaction)
    if draft.tokens <= allowed.prompt or not await _is_wanted(environment, draft.turn):
        return None
    cut = await asyncio.to_thread(_cut, draft, allowed)
    return Plan(cut, allowed) if cut is not None else None


async def plan_after_refusal(environment: Environment, draft: Draft) -> Plan | None:
    """Returns what to summarise after a provider found a request too long; None if compaction is off or would not help.

    Keeps half as much as `plan_before_step`. The estimate was too low, so it is scaled up to at least the window. When
    the window is unknown, the estimate itself is taken as the window.
    """
    if not await _is_wanted(environment, draft.turn):
        return None
    settings = environment.settings.compaction
    window = environment.providers.context_window_tokens(draft.turn.model) or draft.tokens
    scale = max(window / max(draft.tokens, 1), 1.0)
    allowed = allowance(window, draft.turn, msgspec.structs.replace(settings, keep=settings.keep / 2))
    cut = await asyncio.to_thread(_cut, draft, allowed, scale)
    return Plan(cut, allowed) if cut is not None else None


def _cut(draft: Draft, allowed: Allowance, scale: float = 1.0) -> Cut | None:
    """Returns where to cut. Looks at all messages, so it runs on a thread; a request that is too long is rare."""
    return choose_cut(
        draft.request.messages,
        draft.turn,
        allowed,
        int(draft.fixed_tokens * scale),
        lambda message: int(draft.tokens_of(message) * scale),
    )


async def _is_wanted(environment: Environment, turn: Turn) -> bool:
    session = await environment.store.of(turn.tenant).cached_session(turn.session_id)
    return environment.settings.compaction.enabled if session.compaction is None else session.compaction


class Compactor:
    """Carries out plans for one turn. Used by the turn's task."""

    def __init__(self, environment: Environment, turn: Turn) -> None:
        """Takes the turn whose request is too long."""
        self._environment = environment
        self._turn = turn
        self.paid: list[Message] = []
        """Summaries that cost something, failed ones included: their usage is counted in the turn's."""
        self.pending_notice: CompactionStarted | None = None
        """The event that announced the summary that is being written now; None when none is."""

    async def compact(self, draft: Draft, plan: Plan) -> bool:
        """Summarises the older messages and stores the summary; returns when that is durable.

        Cancelling this ends the model call, and nothing is stored.

        Returns:
            False when there is no usable summary; the conversation is as before.

        Raises:
            StorageError: the summary could not be stored.
        """
        environment, turn = self._environment, self._turn
        model = environment.settings.compaction.model or turn.model
        covered = [message for message in plan.cut.covered if message.compaction is None]
        self.pending_notice = CompactionStarted(len(covered), draft.tokens, plan.allowed.window)
        environment.publish(turn, self.pending_notice)
        summariser = Summariser(environment, turn, model, plan.allowed.summary)
        text = ""
        try:
            environment.providers.check(model)
            await environment.providers.get(model.provider_id)
            window = environment.providers.context_window_tokens(model)
            if window is None and model == turn.model:
                window = plan.allowed.window
            # images are large, and the transcript only names them
            named = (file for message in covered for file in (*message.files(), *message.result_files()))
            hashes = {file.sha256 for file in named if is_text(file)}
            files = await environment.store.of(turn.tenant).files(hashes) if hashes else {}
            # the questions of a divided turn come before its steps, so that the summary makes sense of them
            text = await summariser.summarise(_in_order(draft, (*plan.cut.covered, *plan.cut.questions)), files, window)
        except (ProviderError, UnknownModel) as error:
            log.warning("context_not_compacted", session_id=turn.session_id, turn_id=turn.turn_id, reason=error.reason)
        finally:
            self.pending_notice = None
            if not text and (summariser.paid().usage is not None or summariser.estimate() is not None):
                self._pay(self._message("", draft, plan, summariser))
        if not text:
            return False
        message = await self._told(self._message(text, draft, plan, summariser), draft)
        if _saves_nothing(message):  # a model may ignore the length limit of its summary
            self._pay(message)
            log.warning("context_not_compacted", session_id=turn.session_id, turn_id=turn.turn_id, reason="TOO_LONG")
            return False
        self.paid.append(message)
        await self._store(message)
        return True

    def _pay(self, message: Message) -> None:
        """Counts a summary that is not stored."""
        self.paid.append(message)
        spent = spent_by_call(self._turn, message, message.created_at)
        paying = self._environment.commit(self._turn.tenant, message.session_id, spent, message.created_at)
        paying.add_done_callback(self._note_unpaid)

    def _note_unpaid(self, paying: Future[Committed]) -> None:
        if not paying.cancelled() and paying.exception() is not None:
            log.error("summary_not_counted", session_id=self._turn.session_id, turn_id=self._turn.turn_id)

    async def _store(self, message: Message) -> None:
        if message.compaction is None:
            raise TypeError(f"{message.message_id} is not a summary")
        events = (MessageAdded(message), ContextCompacted(message.message_id, message.compaction))
        work = Work((PutMessage(message),), tuple(NewEvent(event, self._turn.turn_id) for event in events))
        work += spent_by_call(self._turn, message, message.created_at)
        count = message.compaction.message_count
        work += note(
            self._turn,
            f"Older messages were summarised ({count}): the model gets the summary in their place.",
            {"event": "context_compacted", "messages": count, "summary_message_id": message.message_id},
            message.created_at,
            settings=self._environment.settings,
            new_id=self._environment.new_id,
        )
        await asyncio.shield(self._environment.commit(self._turn.tenant, message.session_id, work, message.created_at))

    def _message(self, text: str, draft: Draft, plan: Plan, summariser: Summariser) -> Message:
        environment, paid, now = self._environment, summariser.paid(), self._environment.clock()
        return Message(
            message_id=environment.new_id("msg"),
            session_id=self._turn.session_id,
            type=MessageType.SYSTEM,
            status=MessageStatus.COMPLETE,
            created_at=now,
            updated_at=now,
            parts=(Part(part_id=environment.new_id("prt"), index=0, content=Text(text)),),
            turn_id=self._turn.turn_id,
            model_run=summariser.run,
            usage=paid.usage,
            cost_pico_usd=paid.cost_pico_usd,
            estimate=summariser.estimate(),
            compaction=Compaction(
                through_message_id=_through(draft.history, plan.cut),
                message_count=0,
                tokens_before=draft.tokens,
                tokens_after=draft.tokens,
            ),
        )

    async def _told(self, summary: Message, draft: Draft) -> Message:
        """Returns a summary that says how many messages it replaces, and how long the request is with it."""
        if summary.compaction is None:
            raise TypeError(f"{summary.message_id} is not a summary")
        after = await compute(partial(draft.with_history, (*draft.history, summary)), draft.history)
        summaries = {stored.message_id for stored in draft.history if stored.compaction is not None}
        gone = {repair.message_id for repair in after.repairs if repair.reason == RepairReason.COMPACTED} - summaries
        told = msgspec.structs.replace(summary.compaction, message_count=len(gone), tokens_after=after.tokens)
        return msgspec.structs.replace(summary, compaction=told)


def _through(history: Sequence[Message], cut: Cut) -> str:
    """Returns the last message that the new summary covers; never one before the end of the current summary.

    The question of a divided turn is sent after the summary of its steps, but comes before them in the conversation. A
    summary through the question alone would let those steps be sent again.
    """
    at = standing_summary(history)
    standing = history[at].compaction if at is not None else None
    if standing is None:
        return cut.through_message_id
    later = {cut.through_message_id, standing.through_message_id}
    return next(message.message_id for message in reversed(history) if message.message_id in later)


def _saves_nothing(summary: Message) -> bool:
    told = summary.compaction
    return told is None or told.tokens_after >= told.tokens_before


def _in_order(draft: Draft, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Returns messages of a request in the request's order."""
    wanted = {message.message_id for message in messages}
    return tuple(message for message in draft.request.messages if message.message_id in wanted)
