"""What use cases that change a session share: how they store, and how they have messages answered."""

import asyncio
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from turnwire.core.actor import Command, Done
from turnwire.core.environment import Environment
from turnwire.core.intake.requests import NamedRequests, Receipt
from turnwire.core.quotas import PendingUsage
from turnwire.core.turns.registry import Turns
from turnwire.core.turns.schedule import Accepted, Schedule
from turnwire.core.turns.session import SessionTurns
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import BusyPolicy, Turn
from turnwire.domain.principal import Principal
from turnwire.ports.commit import FileChange, Work
from turnwire.ports.store import TenantStore


class UseCase:
    """The base of these use cases. What is stored within a quota counts from its check until it is durable."""

    def __init__(self, environment: Environment, turns: Turns, requests: NamedRequests, pending: PendingUsage) -> None:
        """Takes the ports and settings, the turns, the named requests, and what is on its way to the store."""
        self._environment = environment
        self._turns = turns
        self._requests = requests
        self._pending = pending

    def _of(self, principal: Principal) -> TenantStore:
        return self._environment.store.of(principal.tenant)

    async def _ask(
        self,
        owner: SessionTurns,
        tenant: str,
        value: Struct,
        command: Command[Schedule],
        files: Iterable[FileChange] = (),
    ) -> Done[Schedule]:
        """Has a command carried out that stores a value, which its event carries too. Safe to cancel: it is stored.

        Raises:
            QuotaExceeded: there is no quota left for it.
            StorageError: it was not stored.
        """
        with self._pending.count(tenant, (value,), files, in_events=(value,)) as counted:
            asked = owner.ask(command)
            counted.until(asked)
        return await asyncio.shield(asked)

    async def _accept(
        self,
        turn: Turn,
        message: Message,
        when_busy: BusyPolicy,
        store: Callable[[Accepted], Work],
        *,
        stored: Iterable[Struct],
        in_events: Iterable[Struct] = (),
        files: Iterable[FileChange] = (),
        is_new_session: bool = False,
        expected_turn_id: str = "",
        alone: bool = False,
    ) -> tuple[Accepted, Receipt]:
        """Has a message answered; see `Turns.accept`. Safe to cancel: the message is stored.

        Args:
            turn: As for `Turns.accept`, as all that is not explained here.
            message: See there.
            when_busy: See there.
            store: See there.
            stored: The values that are stored, for the quota.
            in_events: The values that events carry.
            files: The files that are stored.
            is_new_session: Whether a session is created.
            expected_turn_id: See there.
            alone: See there.
        """
        with self._pending.count(
            turn.tenant, stored, files, in_events=in_events, is_new_session=is_new_session
        ) as counted:
            accepting = self._turns.accept(
                turn, message, when_busy, store, expected_turn_id=expected_turn_id, alone=alone
            )
            counted.until(accepting)
        done = await asyncio.shield(accepting)
        accepted: Accepted = done.reply
        return accepted, msgspec.structs.replace(accepted.receipt, sequence=done.before_sequence)
