"""Compaction: a model summarises older messages when a conversation no longer fits the context window.

The summary is stored as a message of its own; the messages that it covers stay and can be read. `assembly` decides from
the stored messages alone what is sent in their place.

A cut is between messages: a tool call has its result in the same message, so the two stay together. The cut is before a
user message, so that it divides no turn. Only if the running turn alone is too long, the cut is between two of its
steps; its user message then stays, word for word, after the summary, and so do those that joined it.
"""

import asyncio
import contextlib
from asyncio import Future
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate

import msgspec
import structlog
from msgspec import Struct

from turnwire.core.computing import compute
from turnwire.core.context.draft import RequestDraft
from turnwire.core.context.summaries import Summariser
from turnwire.core.conversation.landmarks import standing_summary
from turnwire.core.ending import note, spent_by_call
from turnwire.core.environment import Environment
from turnwire.core.settings import CompactionSettings
from turnwire.domain.conversation.events import CompactionStarted, ContextCompacted, MessageAdded
from turnwire.domain.conversation.file_forms import is_text
from turnwire.domain.conversation.messages import (
    Compaction,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    Part,
    Text,
)
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import ProviderError, UnknownModel
from turnwire.domain.repairs import RepairReason
from turnwire.ports.commit import Committed, NewEvent, PutMessage, Work

log = structlog.get_logger()


DEFAULT_ANSWER_TOKENS = 4096
"""Tokens for an answer without a length limit."""
DEFAULT_ANSWER_SHARE = 1 / 8
"""Largest share of the window for such an answer."""
MAX_ANSWER_SHARE = 1 / 2
"""Largest share of the window for any answer, whatever limit the caller sets, so that some is left for a conversation.
"""
MIN_PROMPT_SHARE = 1 / 4
"""Smallest share of the fillable part for the prompt, so that a low threshold and a long answer do not compact every
step."""
MAX_SUMMARY_TOKENS = 4096
"""Maximum tokens of a summary that replaces older messages."""
SUMMARY_SHARE = 1 / 10
"""Largest share of the window for a summary."""
MIN_GAIN = 2
"""The covered messages must be this many times as long as the longest summary, or compaction would gain little."""


class Allowance(Struct, frozen=True, kw_only=True):
    """The division of a model's context window, in estimated tokens."""

    window: int
    answer: int
    """Tokens for the answer."""
    prompt: int
    """Size above which a request is compacted."""
    keep: int
    """Largest size of the request after compaction, including the summary."""
    summary: int
    """Size of the longest summary."""


class Cut(Struct, frozen=True):
    """The part of a conversation that a summary will cover."""

    covered: tuple[Message, ...]
    """As they were sent, in order; an earlier summary comes first. Excludes the questions of a divided turn."""
    through_message_id: str
    questions: tuple[Message, ...] = ()
    """The user message of the running turn, and those that joined it, when the cut divides that turn."""


def allowance(window: int, turn: Turn, settings: CompactionSettings) -> Allowance:
    """Returns the division of a window.

    Args:
        window: The model's context window in tokens.
        turn: The turn, whose output limit bounds the answer.
        settings: The threshold and the share to keep.
    """
    asked = turn.options.max_output_tokens
    answer = min(DEFAULT_ANSWER_TOKENS, window * DEFAULT_ANSWER_SHARE) if asked is None else asked
    answer = int(min(answer, window * MAX_ANSWER_SHARE))
    filled = int(settings.threshold * window)
    prompt = max(filled - answer, int(filled * MIN_PROMPT_SHARE))
    return Allowance(
        window=window,
        answer=answer,
        prompt=prompt,
        # less than the limit, or the next step would be compacted again at once
        keep=min(int(settings.keep * window), prompt * 3 // 4),
        summary=int(min(MAX_SUMMARY_TOKENS, window * SUMMARY_SHARE)),
    )


def choose_cut(
    messages: Sequence[Message], turn: Turn, allowed: Allowance, fixed: int, tokens_of: Callable[[Message], int]
) -> Cut | None:
    """Returns the cut that keeps as much as allowed; None when no cut would gain enough.

    Args:
        messages: The messages of the request, in order.
        turn: The running turn.
        allowed: The window's division.
        fixed: Tokens of system prompt and tools.
        tokens_of: The estimate for one message.
    """
    body = [message for message in messages if message.type is not MessageType.SYSTEM]
    sizes = [tokens_of(message) for message in body]
    total = sum(sizes)
    fixed += allowed.summary + sum(tokens_of(m) for m in messages if m.type is MessageType.SYSTEM)
    covered_before = [0, *accumulate(sizes)]
    said_before = [0, *accumulate(int(message.compaction is None) for message in body)]
    best: _Place | None = None
    best_kept = 0
    for place in (*_places_between_turns(body, turn), *_places_between_steps(body, turn)):
        covered = covered_before[place.at] - sum(sizes[at] for at in place.questions)
        if covered < MIN_GAIN * allowed.summary or not said_before[place.at]:
            continue
        best, best_kept = place, fixed + total - covered
        if best_kept <= allowed.keep:
            return best.cut(body)
    # the shortest possible request; if even that does not fit, no summary is made and the provider rejects the request
    return best.cut(body) if best is not None and best_kept + allowed.answer <= allowed.window else None


class _Place(Struct, frozen=True):
    """A possible cut: before the message at `at`, leaving out the questions of a divided turn."""

    at: int
    questions: tuple[int, ...] = ()

    def cut(self, body: Sequence[Message]) -> Cut:
        covered = tuple(message for at, message in enumerate(body[: self.at]) if at not in self.questions)
        return Cut(covered, body[self.at - 1].message_id, tuple(body[at] for at in self.questions))


def _places_between_turns(body: Sequence[Message], turn: Turn) -> Iterator[_Place]:
    """Yields the cuts that divide no turn and keep the newest user message, oldest first."""
    last_of = {message.turn_id: index for index, message in enumerate(body) if message.turn_id}
    last_of[turn.turn_id] = len(body)  # the running turn continues after its last message
    begun = 0
    """The latest end of the turns that began before the cut."""
    for at in range(1, _newest_question(body) + 1):
        before = body[at - 1]
        if before.turn_id and before.compaction is None:
            begun = max(begun, last_of[before.turn_id])
        if body[at].type is MessageType.USER and begun < at:
            yield _Place(at)


def _places_between_steps(body: Sequence[Message], turn: Turn) -> Iterator[_Place]:
    """Yields the cuts after steps of the running turn, oldest first.

    Yields nothing when the last step is paused, because it must be sent back. Steps with sealed reasoning are covered
    together or not at all: the reasoning of each is valid only after that of the others.
    """
    asked = [at for at, message in enumerate(body) if message.message_id == turn.user_message_id]
    own = (at for at, message in enumerate(body) if message.turn_id == turn.turn_id)
    question = asked[0] if asked else next(own, 0) - 1  # results after which a turn continues are sent with their calls
    if question < 0 or body[-1].finish_reason is FinishReason.PAUSED:
        return
    if not asked and is_question(body[question]):  # of another turn: its own says nothing to a model
        return
    questions = [at for at in range(question, len(body)) if is_question(body[at])]
    sealed = [at for at in range(question + 1, len(body)) if _is_sealed(body[at])]
    for at in range(question + 2, len(body) + 1):
        through = body[at - 1]
        is_step = through.type is MessageType.ASSISTANT and through.turn_id == turn.turn_id
        if is_step and not (sealed and sealed[0] < at <= sealed[-1]):
            yield _Place(at, tuple(one for one in questions if one < at))


def is_question(message: Message) -> bool:
    """Returns whether a message is the user's; a summary is not."""
    return message.type is MessageType.USER and message.compaction is None


def _newest_question(body: Sequence[Message]) -> int:
    """Returns the index of the newest user message; -1 when there is none. A summary does not count."""
    for index in range(len(body) - 1, -1, -1):
        if is_question(body[index]):
            return index
    return -1


def _is_sealed(message: Message) -> bool:
    return any(part.provider_state is not None for part in message.parts)


class Plan(Struct, frozen=True):
    """The messages to summarise, and the division of the window that requires it."""

    cut: Cut
    allowed: Allowance


async def plan_before_step(environment: Environment, draft: RequestDraft) -> Plan | None:
    """Returns what to summarise before a request is sent; None if it fits, or compaction is off or would not help.

    A model with an unknown window gets the complete request; its provider rejects one that is too long.

    Raises:
        UnknownModel: the configuration no longer has this model, which can happen after a restart.
        StorageError: the session could not be read.
    """
    with contextlib.suppress(ProviderError):  # the model call reports why the model cannot be called
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


async def plan_after_refusal(environment: Environment, draft: RequestDraft) -> Plan | None:
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


def _cut(draft: RequestDraft, allowed: Allowance, scale: float = 1.0) -> Cut | None:
    """Returns where to cut. Reads all messages, so it runs on a thread; a request that is too long is rare."""
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
        """Summaries with usage, failed ones included: it counts in the turn's totals."""
        self.pending_notice: CompactionStarted | None = None
        """The event that announced the summary being written; None when none is."""

    async def compact(self, draft: RequestDraft, plan: Plan) -> bool:
        """Summarises the older messages and stores the summary; returns when that is durable.

        Cancelling this ends the model call, and nothing is stored.

        Returns:
            False without a usable summary; the conversation is unchanged.

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
        message = await self._measured(self._message(text, draft, plan, summariser), draft)
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

    def _message(self, text: str, draft: RequestDraft, plan: Plan, summariser: Summariser) -> Message:
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

    async def _measured(self, summary: Message, draft: RequestDraft) -> Message:
        """Returns a summary with the number of messages that it replaces, and the size of the request with it."""
        if summary.compaction is None:
            raise TypeError(f"{summary.message_id} is not a summary")
        after = await compute(partial(draft.with_history, (*draft.history, summary)), draft.history)
        summaries = {stored.message_id for stored in draft.history if stored.compaction is not None}
        gone = {repair.message_id for repair in after.repairs if repair.reason == RepairReason.COMPACTED} - summaries
        measured = msgspec.structs.replace(summary.compaction, message_count=len(gone), tokens_after=after.tokens)
        return msgspec.structs.replace(summary, compaction=measured)


def _through(history: Sequence[Message], cut: Cut) -> str:
    """Returns the last message that the new summary covers; never one before the end of the current summary.

    The question of a divided turn is sent after the summary of its steps, but comes before them in the conversation. A
    summary that ended at the question would let those steps be sent again.
    """
    at = standing_summary(history)
    standing = history[at].compaction if at is not None else None
    if standing is None:
        return cut.through_message_id
    later = {cut.through_message_id, standing.through_message_id}
    return next(message.message_id for message in reversed(history) if message.message_id in later)


def _saves_nothing(summary: Message) -> bool:
    facts = summary.compaction
    return facts is None or facts.tokens_after >= facts.tokens_before


def _in_order(draft: RequestDraft, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Returns messages of a request in the request's order."""
    wanted = {message.message_id for message in messages}
    return tuple(message for message in draft.request.messages if message.message_id in wanted)
