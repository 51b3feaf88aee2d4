"""Leases of client tool calls: finds calls to run, claims them, and keeps, extends or releases the claim."""

import asyncio
from asyncio import Future
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from turnwire.core.actor import Done
from turnwire.core.intake.requests import LeaseChange, Receipt, receipt_record
from turnwire.core.tools.calls import ToolCalls
from turnwire.core.tools.client_calls import ClaimCall, ReleaseLease
from turnwire.core.tools.open_calls import CallsClosed, OpenCalls
from turnwire.core.use_cases.use_case import UseCase
from turnwire.domain.conversation.messages import Part
from turnwire.domain.errors import ToolCallAlreadySettled
from turnwire.domain.principal import Principal
from turnwire.ports.commit import Work
from turnwire.ports.pages import OpenCallPage, Page

_Change = Callable[[ToolCalls, int, Work], "Future[Done[Any]]"]
"""Stores a change of a call, given its calls, its part index and further work."""


class ToolLeases(UseCase):
    """The use cases about leases. Every method may raise SessionNotFound and StorageError.

    Every change is one commit, continues when it is cancelled, and is idempotent when the request is named. Each may
    raise ToolCallNotFound; ToolCallAlreadySettled (the call has a result, is a server tool's, or its turn has ended);
    ToolCallNotReady (it is being written, or waits for a permission); InvalidRequest (the request's name was used for
    another one).
    """

    async def open_calls(
        self, principal: Principal, session_id: str, tools: frozenset[str], page: Page
    ) -> OpenCallPage:
        """Returns a page of the calls that clients may run, in the order in which they became ready.

        Args:
            principal: The caller.
            session_id: The session; "" for all sessions of the caller's tenant.
            tools: Return only calls of these tools; empty for all.
            page: The requested page.

        Raises:
            InvalidRequest: the page token is not from this listing.
        """
        return await self._of(principal).open_calls(session_id, tools, page)

    async def claim(self, principal: Principal, change: LeaseChange) -> Part:
        """Claims a call; returns its part with the lease when that is durable.

        A retry returns the present state of the call.

        Raises:
            LeaseHeld: the call has a lease that lasts.
            LeaseLost: this is a retry, and the lease has ended.
            QuotaExceeded: the tenant may not store more.
        """
        lease_id = self._environment.new_id("lse")

        def store(calls: ToolCalls, index: int, further: Work) -> "Future[Done[Any]]":
            return calls.ask(ClaimCall(index, lease_id, change.holder, change.duration, further))

        return await self._once(principal, change, lease_id, store)

    async def renew(self, principal: Principal, change: LeaseChange) -> Part:
        """Extends a lease and adds log lines; returns the part of the call when that is durable.

        A retry returns the present state of the call, and adds no lines.

        Raises:
            LeaseLost: the lease has ended.
            QuotaExceeded: the tenant may not store more.
        """

        def store(calls: ToolCalls, index: int, further: Work) -> "Future[Done[Any]]":
            return calls.renew(index, change.lease_id, change.duration, change.log_lines, further)

        return await self._once(principal, change, change.lease_id, store)

    async def release(self, principal: Principal, change: LeaseChange) -> Part:
        """Ends a lease; returns the part of the call when that is durable. A retry returns the present state of the
        call.

        Raises:
            LeaseLost: the lease has ended.
        """

        def store(calls: ToolCalls, index: int, further: Work) -> "Future[Done[Any]]":
            return calls.ask(ReleaseLease(index, change.lease_id, further))

        return await self._once(principal, change, "", store)

    async def _once(self, principal: Principal, change: LeaseChange, lease_id: str, store: _Change) -> Part:
        """Carries a change out, after which the caller has the lease with this id; "" for none."""
        carry_out = partial(self._carry_out, principal, change, lease_id, store)
        made = await self._requests.once(principal, change, carry_out)
        if not isinstance(made, Receipt):
            return made
        if made.lease_id:
            calls, index = await self._waiting_call(principal, change)
            calls.check_lease(index, made.lease_id)
            return calls.message.parts[index]
        return await self._stored_part(principal, change)

    async def _carry_out(self, principal: Principal, change: LeaseChange, lease_id: str, store: _Change) -> Part:
        further = receipt_record(principal, change, Receipt(session_id=change.session_id, lease_id=lease_id))
        if lease_id:  # else the change makes nothing larger
            further += self._environment.within_quotas(principal.tenant)
        while True:
            calls, index = await self._waiting_call(principal, change)
            with suppress(CallsClosed):
                changed: OpenCalls = (await asyncio.shield(store(calls, index, further))).reply
                return changed.message.parts[index]

    async def _waiting_call(self, principal: Principal, change: LeaseChange) -> tuple[ToolCalls, int]:
        """Returns the calls that include the one of a change, for which a turn waits, and its part index."""
        session = await self._environment.session(principal, change.session_id)
        waiting = self._turns.waiting_call(session.session_id, change.tool_call_id)
        if waiting is None:
            await self._stored_part(principal, change)
            text = f"tool call {change.tool_call_id!r} has a result already, or no turn waits for it"
            raise ToolCallAlreadySettled(text, change.tool_call_id)
        return waiting

    async def _stored_part(self, principal: Principal, change: LeaseChange) -> Part:
        """Returns the stored part of a call. Raises ToolCallNotFound."""
        reads = self._of(principal)
        message = await reads.message_of_call(change.session_id, change.tool_call_id)
        return next(part for part, _ in message.tool_calls() if part.part_id == change.tool_call_id)
