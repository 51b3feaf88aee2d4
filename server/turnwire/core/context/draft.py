"""The next request of a turn before compaction: content, estimated size and digests."""

from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec import Struct

from turnwire.core.computing import compute
from turnwire.core.context.kept.draft_memory import DraftMemory
from turnwire.core.context.prefix import Prefix, sent_context
from turnwire.core.environment import Environment
from turnwire.core.settings import CoreSettings
from turnwire.core.token_estimate import apply_correction, message_tokens
from turnwire.core.tools.toolbox import Toolbox
from turnwire.domain.conversation.messages import Message, ModelRef, SentContext
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.repairs import Repair
from turnwire.ports.provider import ProviderRequest


class Draft(Struct, frozen=True, kw_only=True):
    """A request without the bytes of its files."""

    history: tuple[Message, ...]
    turn: Turn
    system: str
    toolbox: Toolbox
    names_senders: bool
    """See `Agent.sender_names`."""
    request: ProviderRequest
    repairs: tuple[Repair, ...]
    prefix: Prefix
    sent: SentContext
    correction: float
    """Factor that corrects estimates for this model."""
    size_bytes: int
    """About how much memory it takes on its way to a model."""

    @property
    def tokens(self) -> int:
        """The estimate for the whole request."""
        return self.sent.estimated_tokens

    def tokens_of(self, message: Message) -> int:
        """Returns the estimate for one of its messages."""
        return apply_correction(message_tokens(message), self.correction)

    @property
    def fixed_tokens(self) -> int:
        """The estimate for everything but messages."""
        return max(self.tokens - sum(map(self.tokens_of, self.request.messages)), 0)

    def sent_to(self, model: ModelRef) -> SentContext:
        """Returns what is recorded when this model was asked: the turn's model or a fallback."""
        if model == self.turn.model:
            return self.sent
        compared = sent_context(self.prefix, self.history, model)
        return msgspec.structs.replace(self.sent, break_reason=compared.break_reason)

    def with_history(self, history: Sequence[Message]) -> "Draft":
        """Returns the draft for the same turn and tools with other messages."""
        return _draft(
            DraftMemory(), tuple(history), self.turn, self.system, self.toolbox, names_senders=self.names_senders
        )


async def draft_request(environment: Environment, turn: Turn, history: Sequence[Message], toolbox: Toolbox) -> Draft:
    """Returns the next request of a turn. Costs what is new since the session's last one. Safe to cancel.

    Args:
        environment: Ports and settings.
        turn: The turn.
        history: The session's messages in order, without queued ones.
        toolbox: The tools; open them before the history is read, for that may take seconds.
    """
    settings = environment.settings
    async with environment.kept.use(turn.session_id) as kept:
        memory = kept.take(DraftMemory)
        names_senders = settings.agent(turn.agent).sender_names
        system = _system_prompt(settings, turn)
        work = partial(_draft, memory, tuple(history), turn, system, toolbox, names_senders=names_senders)
        draft = await compute(work, memory.assembly.unknown(history))
        kept.put(memory)
        return draft


def _system_prompt(settings: CoreSettings, turn: Turn) -> str:
    return settings.agent(turn.agent).system if turn.system is None else turn.system


def _draft(
    memory: DraftMemory,
    history: tuple[Message, ...],
    turn: Turn,
    system: str,
    toolbox: Toolbox,
    *,
    names_senders: bool,
) -> Draft:
    assembled = memory.assembly.assemble(history, turn, system, toolbox.definitions, names_senders)
    memory.measures.follow(assembled.request)
    factor = memory.assembly.known.correction(turn.model)
    prefix, tokens = memory.measures.prefix(), memory.measures.tokens(assembled.request)
    return Draft(
        history=history,
        turn=turn,
        system=system,
        toolbox=toolbox,
        names_senders=names_senders,
        request=msgspec.structs.replace(assembled.request, prefix_changed=memory.measures.changed()),
        repairs=assembled.repairs,
        prefix=prefix,
        sent=msgspec.structs.replace(
            sent_context(prefix, history, turn.model, memory.assembly.known),
            estimated_tokens=apply_correction(tokens, factor),
            uncorrected_tokens=tokens,
        ),
        correction=factor,
        size_bytes=memory.measures.size_bytes(assembled.request),
    )
