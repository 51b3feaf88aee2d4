"""What use cases that change a session share: how they have messages answered."""

import asyncio
from collections.abc import Callable

import msgspec

from turnwire.core.environment import Environment
from turnwire.core.intake.requests import NamedRequests, Receipt
from turnwire.core.turns.registry import Turns
from turnwire.core.turns.schedule import Accepted
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
        """Has a message answered within the quotas; see `Turns.accept`. Safe to cancel: the message is stored."""
        quotas = self._environment.within_quotas(turn.tenant)
        accepting = self._turns.accept(
            turn,
            message,
            when_busy,
            lambda accepted: store(accepted) + quotas,
            expected_turn_id=expected_turn_id,
            alone=alone,
        )
        done = await asyncio.shield(accepting)
        accepted: Accepted = done.reply
        return accepted, msgspec.structs.replace(accepted.receipt, sequence=done.before_sequence)
