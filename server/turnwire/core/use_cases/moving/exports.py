"""Exports: sessions as the bytes of one archive."""

import asyncio
import contextlib
import hashlib
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import IO

from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.intake.uploads import disk_errors
from turnwire.core.use_cases.moving.formats import Formats
from turnwire.domain.archive.records import Record
from turnwire.domain.errors import ExportChanged, SessionNotFound, TooManyTransfers
from turnwire.domain.principal import Principal
from turnwire.ports.moving.archives import ArchiveWriter
from turnwire.ports.moving.sessions import SessionArchive

PIECE_BYTES = 64 * 1024
"""Size of a piece, as the contract promises; also about as much as one write carries well."""

MEMORY_BYTES = 2**20
"""A session that is longer waits on the disk for its reader."""

READ_BYTES = 16 * PIECE_BYTES
"""Read in one go on a thread."""


class ExportRequest(Struct, frozen=True, kw_only=True):
    """The sessions to export, and the format."""

    session_ids: tuple[str, ...] = ()
    """In this order; all sessions of the tenant when it is empty."""
    format: str = ""
    include_files: bool = False
    offset: int = 0
    """Number of bytes to leave out at the beginning."""
    prefix_sha256: str = ""
    """Digest of the bytes that are left out; "" compares nothing."""


class Exports:
    """The use case that writes archives.

    `_running` counts the exports of each tenant, bounded by MAX_EXPORTS. A session is written to a temporary file, as
    fast as the store reads it, before its first byte is sent: a slow reader holds that file and nothing else.
    """

    def __init__(self, environment: Environment, formats: Formats) -> None:
        """Takes the ports and the formats."""
        self._environment = environment
        self._formats = formats
        self._running: Counter[str] = Counter()

    def mime(self, request: ExportRequest) -> str:
        """Returns the media type of an archive. Raises InvalidRequest: there is no such format."""
        return self._formats.writer(request.format)(request.include_files).mime

    async def export(self, principal: Principal, request: ExportRequest) -> AsyncGenerator[bytes]:
        """Yields the bytes of an archive in order, in pieces of at most PIECE_BYTES. Cancelling it leaves nothing.

        Equal sessions give equal bytes. A session that is deleted meanwhile is left out, unless the request names it.

        Raises:
            InvalidRequest: there is no such format.
            SessionNotFound: the tenant has no session of a requested id.
            ExportChanged: the archive is shorter than the offset, or begins with other bytes.
            TooManyTransfers: too many exports run.
            StorageError: a session cannot be read, or does not fit on the disk of the database.
        """
        writer = self._formats.writer(request.format)(request.include_files)
        store = self._environment.store.of(principal.tenant)
        for session_id in request.session_ids:
            await store.session(session_id)  # of any node, so memory may not have it as it is
        pieces = _Pieces(request.offset, request.prefix_sha256)
        with self._one_more(principal.tenant):
            session_ids = request.session_ids or await store.session_ids()
            async with store.archive() as archive:
                for session_id in session_ids:
                    try:
                        async with contextlib.aclosing(self._written(archive, writer, session_id, request)) as written:
                            async for data in written:
                                for piece in pieces.take(data):
                                    yield piece
                    except SessionNotFound:
                        if request.session_ids:
                            raise
            for piece in pieces.take(writer.end()):
                yield piece
            for piece in pieces.rest():
                yield piece

    @contextlib.contextmanager
    def _one_more(self, tenant: str) -> Iterator[None]:
        limits = self._environment.settings.limits
        if self._running.total() >= limits.max_exports:
            raise TooManyTransfers.of("limits.max_exports", limits.max_exports, "too many exports run")
        if self._running[tenant] >= limits.max_tenant_exports:
            text = "too many exports of the tenant run already"
            raise TooManyTransfers.of("limits.max_tenant_exports", limits.max_tenant_exports, text)
        self._running[tenant] += 1
        try:
            yield
        finally:
            self._running[tenant] -= 1
            if not self._running[tenant]:
                del self._running[tenant]

    async def _written(
        self, archive: SessionArchive, writer: ArchiveWriter, session_id: str, request: ExportRequest
    ) -> AsyncGenerator[bytes]:
        """Yields the bytes of one session, once all of it has been read."""
        folder = self._environment.settings.spool_folder
        with disk_errors(folder), tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES, dir=str(folder)) as spool:
            records = archive.records(session_id, include_files=request.include_files)
            async with contextlib.aclosing(records) as batches:
                async for batch in batches:
                    await asyncio.to_thread(_write, spool, writer, batch)
            await asyncio.to_thread(spool.seek, 0)
            while data := await asyncio.to_thread(spool.read, READ_BYTES):
                yield data


def _write(spool: IO[bytes], writer: ArchiveWriter, batch: Iterable[Record]) -> None:
    for record in batch:
        spool.write(writer.write(record))


class _Pieces:
    """Cuts bytes into pieces of equal size behind those that the caller has already."""

    def __init__(self, offset: int, prefix_sha256: str) -> None:
        self._skip = offset
        self._expected = prefix_sha256 if offset else ""
        self._digest = hashlib.sha256()
        self._waiting = bytearray()

    def take(self, data: bytes) -> Iterator[bytes]:
        """Yields whole pieces. Raises ExportChanged when the skipped bytes are not the expected ones."""
        if self._skip:
            skipped, data = data[: self._skip], data[self._skip :]
            self._skip -= len(skipped)
            if self._expected:
                self._digest.update(skipped)
                if not self._skip and self._digest.hexdigest() != self._expected:
                    raise ExportChanged("the archive does not begin with the bytes that were sent before")
        self._waiting += data
        while len(self._waiting) >= PIECE_BYTES:
            yield bytes(self._waiting[:PIECE_BYTES])
            del self._waiting[:PIECE_BYTES]

    def rest(self) -> Iterator[bytes]:
        """Yields the last piece, if there is one. Raises ExportChanged when the archive is too short."""
        if self._skip:
            raise ExportChanged("the archive is shorter than the offset")
        if self._waiting:
            yield bytes(self._waiting)
