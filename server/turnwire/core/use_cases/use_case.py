"""The base of use cases that change a session: it starts the turns that answer messages."""

import asyncio
from collections.abc import Callable

import msgspec

from turnwire.core.environment import Environment
from turnwire.core.intake.requests import NamedRequests, Receipt
from turnwire.core.turns.registry import Turns
from turnwire.core.turns.schedule import Accepted, AcceptMessage
from turnwire.core.turns.wholes import held_bytes
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import BusyPolicy, Turn
from turnwire.domain.principal import Principal
from turnwire.ports.commit import Work
from turnwire.ports.store import TenantStore


class UseCase:
    """The base of these use cases."""

    def __init__(self, environment: Environment, turns: Turns, requests: NamedRequests) -> None:
        """Takes the ports and settings, the turns, and the named requests."""
        self._environment = environment
        self._turns = turns
        self._requests = requests

    def _of(self, principal: Principal) -> TenantStore:
        return self._environment.store.of(principal.tenant)

    async def _accept(
        self,
        turn: Turn,
        message: Message,
        when_busy: BusyPolicy,
        store: Callable[[Accepted], Work],
        *,
        expected_turn_id: str = "",
        alone: bool = False,
    ) -> tuple[Accepted, Receipt]:
        """Stores a message to be answered, within the quotas; see `Turns.accept`. Safe to cancel: the message is
        stored.
        """
        environment = self._environment
        quotas = environment.within_quotas(turn.tenant)
        command = AcceptMessage(
            turn=turn,
            message=message,
            when_busy=when_busy,
            store=lambda accepted: store(accepted) + quotas,
            max_waiting=environment.settings.limits.max_queued_messages,
            size_bytes=held_bytes(turn, message),
            expected_turn_id=expected_turn_id,
        )
        done = await asyncio.shield(self._turns.accept(command, alone=alone))
        accepted: Accepted = done.reply
        return accepted, msgspec.structs.replace(accepted.receipt, sequence=done.before_sequence)
