"""The next request of a turn before compaction: content, estimated size and digests."""

from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec import Struct

from turnwire.core.computing import compute
from turnwire.core.conversation.assembly import Assembly
from turnwire.core.conversation.landmarks import correction
from turnwire.core.conversation.prefix import Prefix, sent_context
from turnwire.core.environment import Environment
from turnwire.core.settings import CoreSettings
from turnwire.core.token_estimate import apply_correction, message_tokens
from turnwire.core.tools.toolbox import Toolbox
from turnwire.domain.conversation.messages import Message, ModelRef, SentContext
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.repairs import Repair
from turnwire.ports.provider import ProviderRequest


class RequestDraft(Struct, frozen=True, kw_only=True):
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
    """Approximate memory while it is sent to a model, in bytes."""

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
        """Returns what is recorded of a request to this model: the turn's model or a fallback."""
        if model == self.turn.model:
            return self.sent
        compared = sent_context(self.prefix, self.history, model)
        return msgspec.structs.replace(self.sent, break_reason=compared.break_reason)

    def with_history(self, history: Sequence[Message]) -> "RequestDraft":
        """Returns the draft for the same turn and tools with other messages."""
        turn, toolbox, names_senders = self.turn, self.toolbox, self.names_senders
        return _draft(Assembly(), tuple(history), turn, self.system, toolbox, same=0, names_senders=names_senders)


async def draft_request(
    environment: Environment, turn: Turn, toolbox: Toolbox, further: tuple[Message, ...] = ()
) -> RequestDraft:
    """Returns the next request of a turn. Costs what is new since the session's last one. Safe to cancel.

    Args:
        environment: Ports and settings.
        turn: The turn.
        toolbox: The tools, opened before this call, because that may take seconds.
        further: Messages after those of the conversation.

    Raises:
        SessionNotFound, ConversationTooLarge, StorageError: the conversation could not be read.
    """
    settings, conversations = environment.settings, environment.conversations
    async with conversations.use(turn.tenant, turn.session_id) as conversation:
        history = (*await conversations.read(conversation, turn.tenant, turn.session_id), *further)
        assembly, same = conversation.take_assembly()
        system, names_senders = _system_prompt(settings, turn), settings.agent(turn.agent).sender_names
        work = partial(_draft, assembly, history, turn, system, toolbox, same=same, names_senders=names_senders)
        draft = await compute(work, assembly.new_messages(history, same))
        conversation.put_assembly(assembly)
        return draft


def _system_prompt(settings: CoreSettings, turn: Turn) -> str:
    return settings.agent(turn.agent).system if turn.system is None else turn.system


def _draft(
    assembly: Assembly,
    history: tuple[Message, ...],
    turn: Turn,
    system: str,
    toolbox: Toolbox,
    *,
    same: int,
    names_senders: bool,
) -> RequestDraft:
    assembled = assembly.assemble(history, same, turn, system, toolbox.definitions, names_senders=names_senders)
    factor = correction(history, turn.model)
    prefix, tokens = assembly.prefix(), assembly.tokens(assembled.request)
    return RequestDraft(
        history=history,
        turn=turn,
        system=system,
        toolbox=toolbox,
        names_senders=names_senders,
        request=msgspec.structs.replace(assembled.request, prefix_changed=assembly.changed()),
        repairs=assembled.repairs,
        prefix=prefix,
        sent=msgspec.structs.replace(
            sent_context(prefix, history, turn.model),
            estimated_tokens=apply_correction(tokens, factor),
            uncorrected_tokens=tokens,
        ),
        correction=factor,
        size_bytes=assembly.body_bytes(assembled.request),
    )
