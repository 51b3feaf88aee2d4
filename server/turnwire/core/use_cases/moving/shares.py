"""Shares of an import: what each of several servers brings of one archive, the sessions that it has.

The server that has the import reads the whole archive, and asks the owner of each session to bring it. Which one that
is follows from the id that the session gets. An owner that finds the id taken, or that has lost the session meanwhile,
says who is to try next; so an import goes in rounds, until nothing is left or nobody takes what is left.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from functools import partial
from typing import BinaryIO

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.intake.uploads import spooled
from turnwire.core.use_cases.moving.bringing import NOT_ASKED, Bringing, Brought, ImportRequest
from turnwire.core.use_cases.moving.formats import Formats
from turnwire.domain.errors import ShuttingDown
from turnwire.domain.principal import Principal
from turnwire.domain.shards import SHARDS, shard_of
from turnwire.event_loop.tasks import end, retrieve

REPORTED_AT_ONCE = 500
"""Maximum sessions in one report."""

PAUSE_SECONDS = 0.25
"""Between two reports while nothing ends."""


class ShareRequest(Struct, frozen=True, array_like=True):
    """A request to bring some sessions of an archive."""

    request: ImportRequest
    candidates: bytes
    """For each session of the archive the first id to try, or NOT_ASKED; see `Source.candidates`."""


class ShareReport(Struct, frozen=True, array_like=True):
    """The changes since the report before."""

    position: int
    """Number of bytes of the archive that have been read."""
    brought: tuple[Brought, ...] = ()


_ENCODER = msgspec.msgpack.Encoder()
_REQUESTS = msgspec.msgpack.Decoder(ShareRequest)
_REPORTS = msgspec.msgpack.Decoder(ShareReport)


def encoded(value: ShareRequest | ShareReport) -> bytes:
    """Returns a request or a report as another server takes it."""
    return _ENCODER.encode(value)


def decoded_report(data: bytes) -> ShareReport:
    """Returns what another server has reported."""
    return _REPORTS.decode(data)


class SharePlan:
    """The sessions of an archive that are still to be brought, and the shards to which they belong."""

    def __init__(self) -> None:
        """Begins without a session."""
        self._candidates, self._shards = bytearray(), bytearray()  # a byte for each: an archive may have millions
        self.left = 0
        """Number of sessions that are still to be brought."""
        self.changes = 0
        """Counts what became of sessions, so that who waits sees whether it is worth it."""

    def add(self, session_id: str) -> None:
        """Adds the next session of the archive, with the first id that it may get."""
        self._candidates.append(0)
        self._shards.append(shard_of(session_id))
        self.left += 1

    def note(self, brought: Brought) -> bool:
        """Notes what became of a session. Returns whether it is brought or left out, and was not before."""
        number = brought.number
        before = self._candidates[number]
        if before == NOT_ASKED:
            return False
        if brought.shard is None:
            self._candidates[number] = NOT_ASKED
            self.left -= 1
            self.changes += 1
            return True
        self.changes += (before, self._shards[number]) != (brought.candidate, brought.shard)
        self._candidates[number], self._shards[number] = brought.candidate, brought.shard
        return False

    def is_left(self, number: int) -> bool:
        """Returns whether a session is still to be brought."""
        return self._candidates[number] != NOT_ASKED

    async def by_owner(self, owner_of: Callable[[int], str | None]) -> Mapping[str | None, bytes]:
        """Returns the candidates for the sessions of each owner.

        Args:
            owner_of: Returns the owner of a shard, None for none.
        """
        owners = [owner_of(shard) for shard in range(SHARDS)]
        return await asyncio.to_thread(self._divided, owners)

    def _divided(self, owners: list[str | None]) -> Mapping[str | None, bytes]:
        def sessions() -> Iterator[tuple[int, int]]:
            return zip(self._candidates, self._shards, strict=True)

        found = {owners[shard] for candidate, shard in sessions() if candidate != NOT_ASKED}
        return {
            owner: bytes(candidate if owners[shard] == owner else NOT_ASKED for candidate, shard in sessions())
            for owner in found
        }


class _Share:
    """A share while it is carried out, and what its reader has not taken. Used on the event loop only."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.bringing: Bringing | None = None
        self._brought = deque[Brought]()
        self._position = 0

    def note(self, brought: Brought) -> None:
        self._brought.append(brought)

    def note_position(self, position: int) -> None:
        self._position = max(self._position, position)  # a session may be read again

    def writes_to(self, is_left: Callable[[str], bool]) -> bool:
        """Returns whether it writes to one of some sessions now."""
        return self.bringing is not None and bool(self.bringing.session_id) and is_left(self.bringing.session_id)

    async def reports(self, task: asyncio.Task[None]) -> AsyncGenerator[ShareReport]:
        """Yields reports until the task has ended. Raises ShuttingDown when it was cancelled, and what it raised."""
        while True:
            is_last = task.done()
            count = min(REPORTED_AT_ONCE, len(self._brought))
            yield ShareReport(self._position, tuple(self._brought.popleft() for _ in range(count)))
            if self._brought:
                continue
            if is_last:
                break
            await asyncio.wait({task}, timeout=PAUSE_SECONDS)
        if task.cancelled():
            raise ShuttingDown
        task.result()


class Shares:
    """The shares that this server carries out.

    `_running` has that of each tenant: an import of a tenant has one at a time in each server. `_room` bounds how many
    are carried out at once; the others wait.
    """

    def __init__(self, environment: Environment, formats: Formats) -> None:
        """Takes the ports and the formats."""
        self._environment, self._formats = environment, formats
        self._running: dict[str, _Share] = {}
        self._room = asyncio.Semaphore(environment.settings.limits.max_imports)

    async def carry_out(
        self, principal: Principal, share: ShareRequest, archive: BinaryIO | None = None
    ) -> AsyncGenerator[ShareReport]:
        """Brings the sessions of a share that this server has, and yields reports until it has ended.

        Closing the iterator ends the share; so does another one for the same tenant: whoever asked for this one is
        gone, or has begun anew.

        Args:
            principal: Whose sessions they will be.
            share: What to bring. The archive was validated.
            archive: The bytes of the upload; None reads them from the store.

        Raises:
            ShuttingDown: it was ended before it has brought everything.
            StorageError: nothing more can be stored; what was brought stays.
        """
        while (before := self._running.get(principal.tenant)) is not None:
            await end([before.task])
        running = self._running[principal.tenant] = _Share()
        task = running.task = asyncio.create_task(self._run(running, principal, share, archive), name="import share")
        task.add_done_callback(partial(self._done, principal.tenant))
        try:
            async with contextlib.aclosing(running.reports(task)) as reports:
                async for report in reports:
                    yield report
        finally:
            await end([task])

    async def serve(self, principal: Principal, data: bytes) -> AsyncGenerator[bytes]:
        """Carries out a share for another server; see `carry_out`."""
        async with contextlib.aclosing(self.carry_out(principal, _REQUESTS.decode(data))) as reports:
            async for report in reports:
                yield encoded(report)

    def is_writing(self, is_left: Callable[[str], bool]) -> bool:
        """Returns whether a share writes to one of some sessions now."""
        return any(share.writes_to(is_left) for share in self._running.values())

    async def leave(self, is_left: Callable[[str], bool]) -> None:
        """Ends the shares that write to some sessions now. Those that were asked for begin anew elsewhere."""
        await end([share.task for share in self._running.values() if share.writes_to(is_left)])

    async def aclose(self) -> None:
        """Ends all. Idempotent."""
        await end([share.task for share in self._running.values()])

    async def _run(self, running: _Share, principal: Principal, share: ShareRequest, archive: BinaryIO | None) -> None:
        request, environment = share.request, self._environment
        reader = self._formats.reader(request.format)
        bringing = running.bringing = Bringing(environment, principal, request, reader, running.note_position)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._room)
            if archive is None:
                folder, uploads = environment.settings.spool_folder, environment.store.uploads
                archive = await stack.enter_async_context(spooled(uploads, principal.tenant, request.upload_id, folder))
            await bringing.bring(archive, running.note, share.candidates)

    def _done(self, tenant: str, task: asyncio.Task[None]) -> None:
        retrieve(task)
        running = self._running.get(tenant)
        if running is not None and running.task is task:
            del self._running[tenant]
