"""Imports: the sessions of an archive that was uploaded."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from functools import partial
from uuid import uuid4

from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.intake.uploads import complete_upload, spooled
from turnwire.core.use_cases.moving.bringing import ImportRequest
from turnwire.core.use_cases.moving.formats import Formats
from turnwire.core.use_cases.moving.progress import ImportProgress, ImportStatus
from turnwire.core.use_cases.moving.runs import ImportRun
from turnwire.core.use_cases.moving.shares import Shares
from turnwire.domain.errors import (
    ImportRunning,
    RequestIdReused,
    SessionMoving,
    ShuttingDown,
    TooManyTransfers,
    UploadNotFound,
)
from turnwire.domain.principal import Principal
from turnwire.event_loop.tasks import end, retrieve

MAX_KEPT = 16
"""Imports that have ended and whose outcome is answered again: a few hundred kilobytes each at most."""

_Key = tuple[str, str, str]
"""Tenant, subject, and the name of the request."""


class _Import(Struct, frozen=True):
    """An import that runs or has ended."""

    fingerprint: str
    tenant: str
    progress: ImportProgress


class Imports:
    """The use case that reads archives.

    `_imports` has those that run and the last that have ended, by their names; `_tasks` those that run, with their
    tenants, bounded by `limits.max_imports`. An import continues when its callers are gone; `aclose` ends it, and the
    same request resumes it later. With several servers, all imports of a tenant are at the one that owns the shard of
    the tenant's name.
    """

    def __init__(self, environment: Environment, formats: Formats) -> None:
        """Takes the ports and the formats."""
        self._environment = environment
        self._formats = formats
        self._imports: OrderedDict[_Key, _Import] = OrderedDict()
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._closing = False
        self.shares = Shares(environment, formats)
        """The sessions that this server brings, of its own imports and those of others, where there are several."""

    async def run(self, principal: Principal, request: ImportRequest) -> AsyncGenerator[ImportStatus]:
        """Imports an upload; yields its progress until it has ended. Cancelling this ends the reports, not the import.

        A named request joins the import of the same name, and gets the outcome of one that has ended. Each session is
        imported whole or not at all; one that is there already gets what came since, see `Continuing`, so a request
        may be sent again after a crash. An import that has brought everything removes the upload.

        Raises:
            InvalidRequest: the format or an option is unknown, or the upload is not complete.
            UploadNotFound: the tenant has no such upload.
            ArchiveInvalid: nothing was stored.
            ImportRunning: another import of the tenant runs.
            TooManyTransfers: too many imports run.
            SessionMoving: another server has the imports of the tenant now.
            StorageError: what was imported until then stays.
        """
        async with contextlib.aclosing((await self._joined(principal, request)).follow()) as statuses:
            async for status in statuses:
                yield status

    async def aclose(self) -> None:
        """Ends what runs; half sessions are removed. Idempotent."""
        self._closing = True
        await end(list(self._tasks))
        await self.shares.aclose()

    def is_idle(self, is_left: Callable[[str], bool]) -> bool:
        """Returns whether no import would be ended by `leave`."""
        return not (any(map(is_left, self._tasks.values())) or self.shares.is_writing(is_left))

    async def leave(self, is_left: Callable[[str], bool]) -> None:
        """Ends what runs of some shards: the same request begins it again, at their next owner.

        Args:
            is_left: Returns whether the id of a session or the name of a tenant is of one of the shards.
        """
        await end([task for task, tenant in self._tasks.items() if is_left(tenant)])
        await self.shares.leave(is_left)

    async def _joined(self, principal: Principal, request: ImportRequest) -> ImportProgress:
        key = principal.tenant, principal.subject, request.request_id or uuid4().hex
        if request.request_id:
            stored = await self._environment.store.request(principal, request.request_id)
            if stored is not None:  # of another method: imports are not stored
                raise RequestIdReused.of("request_id", "was used for another request", requestId=request.request_id)
        if (known := self._known(key, request)) is not None:
            return known
        reader = self._formats.reader(request.format)
        upload = await complete_upload(self._environment.store.uploads, principal.tenant, request.upload_id)
        if (known := self._known(key, request)) is not None:  # another call was as quick
            return known
        self._check_room(principal.tenant, request.upload_id)
        progress = ImportProgress()
        progress.total_bytes = upload.received_bytes
        run = ImportRun(self._environment, principal, request, reader=reader, progress=progress, shares=self.shares)
        self._imports[key] = _Import(request.fingerprint, principal.tenant, progress)
        self._imports.move_to_end(key)
        task = asyncio.create_task(self._carry_out(run, principal.tenant, request, progress), name="import")
        self._tasks[task] = principal.tenant
        task.add_done_callback(partial(self._done, progress))
        return progress

    def _known(self, key: tuple[str, str, str], request: ImportRequest) -> ImportProgress | None:
        """Returns the import of a name that runs or needs no repetition; None when the request begins a new one."""
        known = self._imports.get(key)
        if known is None:
            return None
        if known.fingerprint != request.fingerprint:
            raise RequestIdReused.of("request_id", "was used for another request", requestId=request.request_id)
        return known.progress if not known.progress.has_ended or known.progress.is_final else None

    def _check_room(self, tenant: str, upload_id: str) -> None:
        if self._closing:
            raise ShuttingDown
        servers = self._environment.servers
        if servers is not None and not servers.owns(tenant):
            raise SessionMoving
        running = [one for one in self._imports.values() if not one.progress.has_ended]
        if any(one.tenant == tenant for one in running):
            raise ImportRunning("another import of the tenant runs: wait for its end", upload_id)
        limit = self._environment.settings.limits.max_imports
        if len(running) >= limit:
            raise TooManyTransfers.of("limits.max_imports", limit, "too many imports run")

    async def _carry_out(self, run: ImportRun, tenant: str, request: ImportRequest, progress: ImportProgress) -> None:
        error: Exception | None = None
        try:
            folder, uploads = self._environment.settings.spool_folder, self._environment.store.uploads
            async with spooled(uploads, tenant, request.upload_id, folder) as archive:
                await run.carry_out(archive)
            if not request.stores_nothing and not progress.refused_sessions:
                with contextlib.suppress(UploadNotFound):
                    await asyncio.shield(uploads.remove(tenant, request.upload_id))
        except Exception as failure:  # whoever follows the import gets it; nobody may
            error = failure
        progress.end(error)

    def _done(self, progress: ImportProgress, task: asyncio.Task[None]) -> None:
        if not progress.has_ended:  # it was cancelled, maybe before its first step
            progress.end(ShuttingDown())
        del self._tasks[task]
        retrieve(task)
        ended = [key for key, one in self._imports.items() if one.progress.has_ended]
        for key in ended[: max(0, len(ended) - MAX_KEPT)]:
            del self._imports[key]
