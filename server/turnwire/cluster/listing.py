"""Lists of sessions that show what runs at the other nodes, too.

The database knows the sessions and which of them have turns that have not ended. What such a turn does, its queue and
what it waits for are known to the owner of the session, who is asked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from google.protobuf.message import Message

from opencode.session.session_pb2 import (
    GetSessionRequest,
    GetSessionResponse,
    SessionInfo,
    SessionList,
)
from turnwire.api.admission.responses import Answer
from turnwire.api.gate import CallFailed
from turnwire.cluster.routing import Owners
from turnwire.domain.errors import DomainError
from turnwire.domain.principal import Principal

ASKED_AT_ONCE = 16
"""Maximum sessions whose owners one list asks at the same time."""

ASKING_SECONDS = 1.0
"""Maximum time for which a list waits for the owners. What is not known by then is shown as idle."""

Method = Callable[[Principal, Message], Awaitable[Answer]]

Busy = Callable[[Sequence[str]], Awaitable[frozenset[str]]]
"""Returns those of some sessions, by their ids, whose turns have not all ended, whichever node has them."""


class ListEverywhere:
    """The method ListSessions of a node."""

    def __init__(
        self,
        list_sessions: Method,
        get_session: Method,
        owners: Owners,
        busy: Busy,
    ) -> None:
        """Args:
        list_sessions: Lists all sessions, with what runs on this node.
        get_session: Returns one as its owner has it.
        owners: The owners of sessions.
        busy: Returns those of some sessions whose turns have not all ended.
        """
        self._list, self._get, self._owners, self._busy = list_sessions, get_session, owners, busy

    async def __call__(self, principal: Principal, request: Message) -> Answer:
        """Returns a page of sessions. Raises what the list of this node raises."""
        page = cast(bytes, await self._list(principal, request))
        listed = SessionList.FromString(page)
        elsewhere = {one.id: one for one in listed.sessions if self._owners.owner(one.id) != ""}
        if not elsewhere or not (busy := await self._busy(tuple(elsewhere))):
            return page
        room = asyncio.Semaphore(ASKED_AT_ONCE)
        asking = [asyncio.create_task(self._ask(principal, elsewhere[one], room)) for one in busy]
        try:
            await asyncio.wait(asking, timeout=ASKING_SECONDS)
        finally:
            for task in asking:
                task.cancel()
        return listed.SerializeToString()

    async def _ask(self, principal: Principal, listed: SessionInfo, room: asyncio.Semaphore) -> None:
        """Fills in what the owner of a session knows; leaves it as it is when the owner does not answer."""
        async with room:
            try:
                answer = await self._get(principal, GetSessionRequest(session_id=listed.id))
            except (DomainError, CallFailed):  # it moves, or was deleted meanwhile
                return
        known = GetSessionResponse.FromString(answer) if isinstance(answer, bytes) else cast(GetSessionResponse, answer)
        session = known.session
        listed.status, listed.queued_messages = session.status, session.queued_messages
        listed.open_requests = session.open_requests
        if session.HasField("active_turn_id"):
            listed.active_turn_id = session.active_turn_id
