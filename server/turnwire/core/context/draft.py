"""The next request of a turn before compaction: content, estimated size and digests."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from turnwire.core.context.assembly import assemble, file_hashes
from turnwire.core.context.prefix import prefix_changed, prefix_of, sent_context
from turnwire.core.settings import CoreSettings
from turnwire.core.token_estimate import apply_correction, correction, estimate_tokens, message_tokens
from turnwire.core.tools.toolbox import Toolbox, open_toolbox
from turnwire.domain.conversation.messages import Message, ModelRef, SentContext
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.repairs import Repair
from turnwire.ports.provider import ProviderRequest
from turnwire.ports.store import TenantStore
from turnwire.ports.tools import ServerTools


class Draft(Struct, frozen=True, kw_only=True):
    """A request without the bytes of its files."""

    history: tuple[Message, ...]
    turn: Turn
    system: str
    toolbox: Toolbox
    request: ProviderRequest
    repairs: tuple[Repair, ...]
    sent: SentContext
    correction: float
    """Factor that corrects estimates for this model."""

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
        compared = sent_context(prefix_of(self.request), self.history, model)
        return msgspec.structs.replace(self.sent, break_reason=compared.break_reason)

    def with_history(self, history: Sequence[Message]) -> "Draft":
        """Returns the draft for the same turn and tools with other messages."""
        return _draft(tuple(history), self.turn, self.system, self.toolbox)


async def draft_request(
    settings: CoreSettings, server_tools: ServerTools, turn: Turn, history: Sequence[Message]
) -> Draft:
    """Returns the next request of a turn.

    Args:
        settings: Hold agents and permissions.
        server_tools: Tools that the server runs.
        turn: The turn.
        history: The session's messages in order, without queued ones.
    """
    toolbox = await open_toolbox(turn.tools, settings, turn.agent, server_tools)
    return _draft(tuple(history), turn, _system_prompt(settings, turn), toolbox)


async def with_files(store: TenantStore, request: ProviderRequest) -> ProviderRequest:
    """Returns the request with the bytes of those of its files that the turn's tenant has stored."""
    hashes = file_hashes(request)
    return msgspec.structs.replace(request, files=await store.files(hashes)) if hashes else request


def _system_prompt(settings: CoreSettings, turn: Turn) -> str:
    return settings.agent(turn.agent).system if turn.system is None else turn.system


def _draft(history: tuple[Message, ...], turn: Turn, system: str, toolbox: Toolbox) -> Draft:
    assembled = assemble(history, turn, system, toolbox.definitions)
    prefix = prefix_of(assembled.request)
    factor, tokens = correction(history, turn.model), estimate_tokens(assembled.request)
    return Draft(
        history=history,
        turn=turn,
        system=system,
        toolbox=toolbox,
        request=msgspec.structs.replace(assembled.request, prefix_changed=prefix_changed(assembled.request, prefix)),
        repairs=assembled.repairs,
        sent=msgspec.structs.replace(
            sent_context(prefix, history, turn.model),
            estimated_tokens=apply_correction(tokens, factor),
            uncorrected_tokens=tokens,
        ),
        correction=factor,
    )
