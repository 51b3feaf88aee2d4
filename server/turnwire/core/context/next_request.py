"""The requests of one turn's steps: reads the conversation and compacts it if needed."""

import sys

from turnwire.core.context.compaction import Compactor, Plan, plan_after_refusal, plan_before_step
from turnwire.core.context.draft import RequestDraft, draft_request
from turnwire.core.environment import Environment
from turnwire.core.memory import PromptPlace
from turnwire.core.tools.toolbox import Toolbox, open_toolbox
from turnwire.domain.conversation.events import CompactionStarted
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import Turn

MAX_FAILED_SUMMARIES = 2
"""Maximum failed summaries of one turn: a model that never writes a usable one would cost money at each step. After
that, requests are sent as they are, and the provider rejects those that are too long."""


KEPT_SETTINGS_BYTES = 32 * 1024
"""Maximum size of a system prompt and tools that a running turn keeps in memory. Larger ones are read again for each
request of the turn. A waiting turn takes about as much anyway."""


class StepRequests:
    """Makes the requests of one turn. Used by the turn's task."""

    def __init__(self, environment: Environment, turn: Turn, summaries: tuple[Message, ...] = ()) -> None:
        """Args:
        environment: Ports and settings.
        turn: The turn; nothing is read before `next`.
        summaries: Summaries that this turn made before a restart.
        """
        self._environment = environment
        size = settings_bytes(turn)
        self.is_header = size > KEPT_SETTINGS_BYTES
        """Whether the turn is kept without its tools and its system prompt."""
        self._left_out_bytes = size if self.is_header else 0
        self._turn = turn = self.kept(turn)
        self._compactor = Compactor(environment, turn)
        self._summaries = summaries
        self._failed = 0
        self.is_compacted = False
        """Whether the conversation was summarised for the newest request."""
        self.place = PromptPlace(environment.prompts, turn.tenant)
        """The memory reserved for the newest request, held until it is released. While a request is made, the
        reservation is as large as the conversation that was read for it."""

    def kept(self, turn: Turn) -> Turn:
        """Returns the turn as it is kept while it runs."""
        return turn.header() if self.is_header else turn

    async def toolbox(self) -> Toolbox:
        """Returns the tools for the next step; see `open_toolbox`."""
        return (await self._read())[1]

    def paid_summaries(self) -> tuple[Message, ...]:
        """Returns the summaries that this turn paid for, for its totals; includes summaries from before a restart."""
        return (*self._summaries, *self._compactor.paid)

    @property
    def pending_notice(self) -> CompactionStarted | None:
        """The event that announced the summary being written; None when none is."""
        return self._compactor.pending_notice

    async def next(self) -> RequestDraft:
        """Returns the request for the next step; compacts the conversation first if it would not fit.

        Waits for its reservation. Safe to cancel.

        Raises:
            ConversationTooLarge: the request is larger than all prompts together may be.
            SessionNotFound, StorageError: the conversation could not be read, or a summary could not be stored.
            UnknownModel: the turn's model is no longer configured.
        """
        draft = await self._draft()
        plan = await plan_before_step(self._environment, draft)
        self.is_compacted = plan is not None and await self._compact(draft, plan)
        if self.is_compacted:
            del draft, plan  # before the conversation is read again
            return await self.again()
        return self._placed(draft)

    async def again(self) -> RequestDraft:
        """Returns a new request for the same step, for another attempt; otherwise like `next`."""
        return self._placed(await self._draft())

    async def shorter(self) -> RequestDraft | None:
        """Returns a shorter request in place of the last one, which its provider rejected as too long.

        None when the conversation was already compacted for it, or when compaction is off or would not help. Otherwise
        like `next`.
        """
        if self.is_compacted:
            return None
        draft = await self._draft()
        plan = await plan_after_refusal(self._environment, draft)
        if plan is None or not await self._compact(draft, plan):
            return None
        self.is_compacted = True
        del draft, plan  # before the conversation is read again
        return await self.again()

    async def _compact(self, draft: RequestDraft, plan: Plan) -> bool:
        if self._failed >= MAX_FAILED_SUMMARIES:
            return False
        is_done = await self._compactor.compact(draft, plan)
        self._failed += not is_done
        return is_done

    async def _draft(self) -> RequestDraft:
        """Returns the draft with its reservation. While it waits for one, nothing of the conversation is kept here."""
        environment, session_id = self._environment, self._turn.session_id
        kept = None if self.is_header else await self._read()  # may take seconds, so nothing is reserved yet
        tenant, prompt_bytes = self._turn.tenant, 0
        while True:
            size = environment.conversations.bytes_of(tenant, session_id)
            if size is None:
                size = await environment.store.of(tenant).history_bytes(session_id)
            # a conversation may be larger than its prompt, when a summary replaces most of it
            needed = self._left_out_bytes + size
            await self.place.take(max(min(needed, self.place.max_bytes), prompt_bytes))
            turn, toolbox = kept or await self._read()
            draft = await draft_request(environment, turn, toolbox)
            if self.place.fits(draft.size_bytes):
                return draft
            prompt_bytes = draft.size_bytes
            del turn, toolbox, draft

    async def _read(self) -> tuple[Turn, Toolbox]:
        """Returns the complete turn and its tools."""
        environment, turn = self._environment, self._turn
        if self.is_header:
            turn = await environment.store.of(turn.tenant).turn(turn.session_id, turn.turn_id)
        settings = environment.settings
        return turn, await open_toolbox(turn.tools, settings, turn.agent, environment.tools)

    def _placed(self, draft: RequestDraft) -> RequestDraft:
        """Returns the draft; shrinks its reservation to the size of its prompt."""
        self.place.shrink(draft.size_bytes)
        return draft


def settings_bytes(turn: Turn) -> int:
    """Returns the approximate memory of the system prompt and the tools of a turn, in bytes."""
    texts = [text for tool in turn.tools for text in (tool.name, tool.description, tool.input_schema_json)]
    return sum(map(sys.getsizeof, (turn.system, *texts)))
