"""Exports and imports over the real store, without a listener: archives in, archives out."""

import asyncio
import contextlib
import hashlib
import itertools
import shutil
from collections.abc import AsyncIterator, Coroutine, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes.core import FakeProviders, FakeServerTools, ManualClock, PlainCodec
from tests.support.fakes.opened_store import opened_store
from turnwire.core.environment import Environment
from turnwire.core.settings import CoreSettings
from turnwire.core.use_cases.moving.bringing import ImportRequest
from turnwire.core.use_cases.moving.exports import ExportRequest, Exports
from turnwire.core.use_cases.moving.formats import OWN, Formats
from turnwire.core.use_cases.moving.imports import Imports
from turnwire.core.use_cases.moving.progress import ImportedSession, ImportStatus
from turnwire.domain.archive.records import ImportProblem, Record
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.ids import new_id
from turnwire.domain.principal import Principal, Role
from turnwire.feed.memory import Feed
from turnwire.interop.turnwire_lines.reading import LinesReader
from turnwire.interop.turnwire_lines.writing import LinesWriter
from turnwire.ports.commit import Commit
from turnwire.ports.moving.archives import ArchiveFormat
from turnwire.ports.moving.uploads import Chunk, Upload, UploadLimits
from turnwire.storage.sqlite.store import SqliteStore

MINE = Principal(tenant="mine", subject="me", role=Role.WRITER)
OTHERS = Principal(tenant="others", subject="they", role=Role.WRITER)

_numbers = itertools.count(1)


@dataclass
class Outcome:
    """Summary of all responses of an import."""

    sessions: list[ImportedSession]
    problems: list[ImportProblem]
    last: ImportStatus


@dataclass
class Moving:
    """A store with what moves sessions."""

    store: SqliteStore
    environment: Environment
    exports: Exports
    imports: Imports
    path: Path

    async def upload(self, archive: bytes, principal: Principal = MINE, *, is_whole: bool = True) -> str:
        """Stores an upload and returns its id."""
        upload_id, now = f"upl_{next(_numbers)}", self.environment.clock()
        upload = Upload(
            upload_id=upload_id, tenant=principal.tenant, subject="", created_at=now, expires_at=now.replace(year=2100)
        )
        uploads = self.store.uploads
        await uploads.create(upload, UploadLimits(max_uploads=100, max_removed_bytes=2**40), None)
        size = 2**20
        for start in range(0, len(archive), size) or (0,):
            is_last = is_whole and start + size >= len(archive)
            chunk = Chunk(offset=start, data=archive[start : start + size], is_last=is_last)
            await uploads.write(principal.tenant, upload_id, chunk, upload.expires_at)
        if is_whole:
            await uploads.complete(principal.tenant, upload_id, hashlib.sha256(archive).hexdigest())
        return upload_id

    async def bring(self, archive: bytes, principal: Principal = MINE, **fields: Any) -> Outcome:
        """Imports an archive and returns what came of it."""
        return await self.follow(principal, upload_id=await self.upload(archive, principal), **fields)

    async def follow(self, principal: Principal, **fields: Any) -> Outcome:
        """Sends a request and reads to its end."""
        sessions, problems, last = list[ImportedSession](), list[ImportProblem](), None
        async for last in self.imports.run(principal, ImportRequest(**fields)):
            sessions += last.sessions
            problems += last.problems
        assert last is not None
        return Outcome(sessions, problems, last)

    async def archive(self, principal: Principal = MINE, *session_ids: str, include_files: bool = True) -> bytes:
        """Exports sessions."""
        request = ExportRequest(session_ids=session_ids, include_files=include_files)
        return b"".join([piece async for piece in self.exports.export(principal, request)])


@contextlib.asynccontextmanager
async def moving(folder: Path, settings: CoreSettings | None = None, **formats: ArchiveFormat) -> AsyncIterator[Moving]:
    """Opens `folder/turnwire.db` and starts what moves sessions."""
    settings = settings or CoreSettings(default_model=ModelRef("offline", "echo"))
    async with opened_store(folder) as opened:
        environment = Environment(
            store=opened.store,
            feed=Feed(PlainCodec(), 10, tick=timedelta(seconds=1)),  # type: ignore[arg-type]
            providers=FakeProviders(),  # type: ignore[arg-type]
            settings=settings,
            clock=ManualClock(),
            new_id=new_id,
            tools=FakeServerTools(),
        )
        own = ArchiveFormat(LinesReader(2**22), lambda include_files: LinesWriter(include_files=include_files))
        all_formats = Formats({OWN: own, **formats})
        imports = Imports(environment, all_formats)
        try:
            exports = Exports(environment, all_formats)
            yield Moving(opened.store, environment, exports, imports, opened.path)
        finally:
            await imports.aclose()


def lines(records: Iterable[Record], *, include_files: bool = True) -> bytes:
    """Returns an archive of Turnwire."""
    writer = LinesWriter(include_files=include_files)
    return b"".join(map(writer.write, records)) + writer.end()


async def until_clean(store: SqliteStore) -> None:
    """Waits until nothing is left of sessions that were removed."""
    await store.removals()


def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a commit hold two changes at most."""
    monkeypatch.setattr("turnwire.core.use_cases.moving.parts.PART_CHANGES", 2)


async def dies_at(here: Moving, commits: int, work: Coroutine[Any, Any, Any], copy: Path) -> bool:
    """Runs some work until the store has taken a number of commits, and copies the database as kill -9 leaves it.

    Returns False when the work was done before.
    """
    real, left, dead = here.store.commit, itertools.count(commits, -1), asyncio.Event()

    def commit(unit: Commit) -> asyncio.Future[Any]:
        if next(left) > 0:
            return real(unit)  # type: ignore[no-any-return]
        dead.set()
        return asyncio.get_running_loop().create_future()

    here.store.commit = commit
    task, death = asyncio.ensure_future(work), asyncio.ensure_future(dead.wait())
    await asyncio.wait((task, death), return_when=asyncio.FIRST_COMPLETED)
    here.store.commit = real
    if task.done():
        death.cancel()
        await task
        return False
    copy.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{here.path}{suffix}", copy)
    task.cancel()
    await asyncio.wait((task,))
    return True
