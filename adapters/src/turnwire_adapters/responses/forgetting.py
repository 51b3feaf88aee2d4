"""Deletes what is not to be kept: responses with `store: false`, and sessions that hold one request alone.

The adapter has no rights of its own, so everything is done with the token of a caller: at once while the process runs,
and what an earlier process left when a caller of that tenant comes again.
"""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Self

import structlog

from opencode.session.session_pb2 import (
    SESSION_STATUS_IDLE,
    DeleteSessionRequest,
    GetSessionRequest,
    ListSessionsRequest,
)
from opencode.session.session_pb2_grpc import SessionServiceStub
from turnwire_adapters.doors import DOOR_LABEL
from turnwire_adapters.responses.creating import DOOR, STORE_LABEL
from turnwire_adapters.responses.errors import ApiError
from turnwire_adapters.responses.following import finished
from turnwire_adapters.responses.ids import ResponseId
from turnwire_adapters.upstream import Upstream
from turnwire_client import Client, NotFoundError, TurnwireError

KEEP_SECONDS = 30 * 86_400
"""Time for which a session that holds one request alone is kept: as long as OpenAI keeps responses."""

LEFT_SECONDS = 600
"""Without a change for so long, a session that was not to be kept was left by a process that is gone."""

REPEAT_SECONDS = 600
"""Time for which a response that is not stored is kept behind its end when its request has a key: a retry gets it."""

SWEEP_SECONDS = 3_600
"""Between two looks at what is left, for each token."""

MAX_TOKENS = 1_000
"""Tokens of which the time of the last look is kept."""

log = structlog.get_logger("turnwire_adapters")


class Forgetting:
    """Deletes in the background while the `async with` block lasts."""

    def __init__(self, upstream: Upstream) -> None:
        """Takes the server that has the sessions."""
        self._upstream = upstream
        self._tasks: set[asyncio.Task[None]] = set()
        """Running tasks; each ends by itself, or with the block."""
        self._swept: dict[str, float] = {}
        """When the sessions of a token were looked at."""

    async def __aenter__(self) -> Self:
        """Returns itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends what runs; what is left is deleted when its caller comes again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def delete_when_ended(self, token: str, named: ResponseId, keep_seconds: float = 0) -> None:
        """Deletes the session that was made for a response that is not stored, so long after its end."""
        self._start(self._delete_when_ended(token, named, keep_seconds))

    def look(self, token: str) -> None:
        """Deletes what is left of the caller's tenant, now and then."""
        now = time.monotonic()
        if now - self._swept.get(token, -SWEEP_SECONDS) >= SWEEP_SECONDS:
            if len(self._swept) >= MAX_TOKENS:
                self._swept.clear()
            self._swept[token] = now
            self._start(self._sweep(token))

    def _start(self, deleting: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(self._quietly(deleting))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _quietly(self, deleting: Coroutine[None, None, None]) -> None:
        try:
            await deleting
        except (ApiError, TurnwireError) as error:
            log.warning("not deleted yet", problem=str(error))

    async def _delete_when_ended(self, token: str, named: ResponseId, keep_seconds: float) -> None:
        async with self._upstream.client(token) as client:
            with contextlib.suppress(ApiError):
                await finished(client, named)
        await asyncio.sleep(keep_seconds)
        async with self._upstream.client(token) as client:
            asked = GetSessionRequest(session_id=named.session_id)
            session = (await client.call(client.stub(SessionServiceStub).GetSession, asked)).session
            if session.settings.labels.get(STORE_LABEL) == "false":  # others had the conversation before, and keep it
                await _delete(client, named.session_id)

    async def _sweep(self, token: str) -> None:
        async with self._upstream.client(token) as client:
            for label, value, seconds in (
                (STORE_LABEL, "false", LEFT_SECONDS),
                (DOOR_LABEL, DOOR, KEEP_SECONDS),
            ):
                await self._delete_old(client, ListSessionsRequest(labels={label: value}, page_size=1000), seconds)

    async def _delete_old(self, client: Client, request: ListSessionsRequest, seconds: int) -> None:
        before = (time.time() - seconds) * 1000
        while True:
            page = await client.call(client.stub(SessionServiceStub).ListSessions, request)
            for session in page.sessions:
                if session.status == SESSION_STATUS_IDLE and session.time.updated < before:
                    await _delete(client, session.id)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


async def _delete(client: Client, session_id: str) -> None:
    with contextlib.suppress(NotFoundError):  # another process was faster
        await client.call(client.stub(SessionServiceStub).DeleteSession, DeleteSessionRequest(session_id=session_id))
