"""Compaction: older messages are summarised by a model when a conversation does not fit its context window any more.

The summary is a message of its own, stored beside the messages that it stands for; those stay and can be read. What is
sent in their place is decided by `context.assemble`, from the stored messages alone.
"""

import asyncio
import contextlib
from collections.abc import Sequence

import msgspec
import structlog
from msgspec import Struct

from turnwire.core.context.assembly import standing_summary
from turnwire.core.context.compaction_plan import Allowance, Cut, allowance, choose_cut
from turnwire.core.context.draft import Draft
from turnwire.core.context.summaries import Summariser
from turnwire.core.context.token_estimate import is_text
from turnwire.core.ending.host_messages import note
from turnwire.core.environment import Environment
from turnwire.core.work import Work
from turnwire.domain.conversation.events import CompactionStarted, ContextCompacted, MessageAdded
from turnwire.domain.conversation.messages import Compaction, Message, MessageStatus, MessageType, Part, Text
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import ProviderError, UnknownModel
from turnwire.domain.repairs import RepairReason
from turnwire.ports.commit import NewEvent, PutMessage

log = structlog.get_logger()


class Plan(Struct, frozen=True):
    """What is to be summarised, and why."""

    cut: Cut
    allowed: Allowance


async def plan_before_step(environment: Environment, draft: Draft) -> Plan | None:
    """Returns what to summarise before a request is sent; None when it fits, or nothing can or may be done.

    A model whose window nobody knows is asked with all there is; its provider says when that is too much.

    Raises:
        UnknownModel: the configuration has no such model any more, as may be after a restart.
        StorageError: the session could not be read.
    """
    with contextlib.suppress(ProviderError):  # whoever asks the model tells why it cannot be asked
        environment.providers.check(draft.turn.model)
        await environment.providers.get(draft.turn.model.provider_id)
    window = environment.providers.context_window_tokens(draft.turn.model)
    if window is None:
        return None
    allowed = allowance(window, draft.turn, environment.settings.compaction)
    if draft.tokens <= allowed.prompt or not await _is_wanted(environment, draft.turn.session_id):
        return None
    cut = choose_cut(draft.request.messages, draft.turn, allowed, draft.fixed_tokens, draft.tokens_of)
    return Plan(cut, allowed) if cut is not None else None


async def plan_after_refusal(environment: Environment, draft: Draft) -> Plan | None:
    """Returns what to summarise after a provider found a request too long; None when nothing can or may be done.

    Half as much is kept as before a step. The estimate was too low, so it counts as at least the window; of a window
    that nobody knows it is only known now that the request is longer.
    """
    if not await _is_wanted(environment, draft.turn.session_id):
        return None
    settings = environment.settings.compaction
    window = environment.providers.context_window_tokens(draft.turn.model) or draft.tokens
    scale = max(window / max(draft.tokens, 1), 1.0)
    allowed = allowance(window, draft.turn, msgspec.structs.replace(settings, keep=settings.keep / 2))
    cut = choose_cut(
        draft.request.messages,
        draft.turn,
        allowed,
        int(draft.fixed_tokens * scale),
        lambda message: int(draft.tokens_of(message) * scale),
    )
    return Plan(cut, allowed) if cut is not None else None


async def _is_wanted(environment: Environment, session_id: str) -> bool:
    session = await environment.store.cached_session(session_id)
    return environment.settings.compaction.enabled if session.compaction is None else session.compaction


class Compactor:
    """Carries out plans for one turn. Used by the turn's task."""

    def __init__(self, environment: Environment, turn: Turn) -> None:
        """Takes the turn that needs the room."""
        self._environment = environment
        self._turn = turn
        self.paid: list[Message] = []
        """Summaries as far as they were paid, those that failed included: their usage is the turn's."""
        self.pending_notice: CompactionStarted | None = None
        """What watchers were told of the summary that is being written now."""

    async def compact(self, draft: Draft, plan: Plan) -> bool:
        """Has the older messages summarised and stores the summary; returns when that is durable.

        Cancelling it ends the model's call, and nothing is stored.

        Returns:
            False when no summary could be had; the conversation is as before.

        Raises:
            StorageError: the summary could not be stored.
        """
        environment, turn = self._environment, self._turn
        model = environment.settings.compaction.model or turn.model
        covered = [message for message in plan.cut.covered if message.compaction is None]
        self.pending_notice = CompactionStarted(len(covered), draft.tokens, plan.allowed.window)
        environment.publish(turn.session_id, self.pending_notice)
        summariser = Summariser(environment, turn, model, plan.allowed.summary)
        text = ""
        try:
            environment.providers.check(model)
            await environment.providers.get(model.provider_id)
            window = environment.providers.context_window_tokens(model)
            if window is None and model == turn.model:
                window = plan.allowed.window
            # pictures are only named, and they are what is large
            named = (file for message in covered for file in (*message.files(), *message.result_files()))
            hashes = {file.sha256 for file in named if is_text(file)}
            files = await environment.store.files(hashes) if hashes else {}
            # behind the question of a divided turn come the steps that are about it
            question = () if plan.cut.question is None else (plan.cut.question,)
            text = await summariser.summarise(_in_order(draft, (*plan.cut.covered, *question)), files, window)
        except (ProviderError, UnknownModel) as error:
            log.warning("context_not_compacted", session_id=turn.session_id, turn_id=turn.turn_id, reason=error.reason)
        finally:
            self.pending_notice = None
            if not text and summariser.paid().usage is not None:
                self.paid.append(self._message("", draft, plan, summariser))
        if not text:
            return False
        message = self._message(text, draft, plan, summariser)
        self.paid.append(message)
        if _saves_nothing(message):  # a model may ignore how long its summary may be
            log.warning("context_not_compacted", session_id=turn.session_id, turn_id=turn.turn_id, reason="TOO_LONG")
            return False
        await self._store(message)
        return True

    async def _store(self, message: Message) -> None:
        if message.compaction is None:
            raise TypeError(f"{message.message_id} is no summary")
        events = (MessageAdded(message), ContextCompacted(message.message_id, message.compaction))
        work = Work((PutMessage.whole(message),), tuple(NewEvent(event, self._turn.turn_id) for event in events))
        count = message.compaction.message_count
        work += note(
            self._environment,
            self._turn,
            f"Older messages were summarised ({count}): the model gets the summary in their place.",
            {"event": "context_compacted", "messages": count, "summary_message_id": message.message_id},
            message.created_at,
        )
        await asyncio.shield(self._environment.commit(message.session_id, work, message.created_at))

    def _message(self, text: str, draft: Draft, plan: Plan, summariser: Summariser) -> Message:
        environment, paid, now = self._environment, summariser.paid(), self._environment.clock()
        compaction = Compaction(
            through_message_id=_through(draft.history, plan.cut),
            message_count=0,
            tokens_before=draft.tokens,
            tokens_after=draft.tokens,
        )
        message = Message(
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
            compaction=compaction,
        )
        after = draft.with_history((*draft.history, message))
        summaries = {stored.message_id for stored in draft.history if stored.compaction is not None}
        gone = {repair.message_id for repair in after.repairs if repair.reason == RepairReason.COMPACTED} - summaries
        return msgspec.structs.replace(
            message,
            compaction=msgspec.structs.replace(compaction, message_count=len(gone), tokens_after=after.tokens),
        )


def _through(history: Sequence[Message], cut: Cut) -> str:
    """Returns the last message that the new summary stands for: never one before the end of the standing summary.

    The question of a divided turn is sent behind the summary of its steps, but stands before them in the conversation.
    Through it alone, those steps would be sent again.
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
