"""Files: uploads in pieces, and the stored files to which messages and tool results refer."""

import asyncio
import hashlib
from pathlib import PurePosixPath

from turnwire.core.environment import Environment
from turnwire.core.intake.contents import is_media_type
from turnwire.core.intake.requests import NamedRequests, NewUpload, Receipt, receipt_record
from turnwire.domain.errors import InvalidRequest, MessageTooLarge, ShuttingDown, StorageError, StoredFileNotFound
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.domain.principal import Principal
from turnwire.event_loop.tasks import end, retrieve
from turnwire.ports.clock import Clock
from turnwire.ports.commit import RecordRequest
from turnwire.ports.moving.uploads import Chunk, Upload, UploadLimits

MAX_DIGESTS = 2
"""Maximum uploads whose digests are computed at the same time; others wait. One keeps a core and the reader of the
database busy."""

INTERVAL_SECONDS = 60.0
"""Interval between checks for expired uploads: the longest delay of a removal that the contract allows."""


class Uploads:
    """The use cases about uploads. Every method may raise StorageError, and about one upload UploadNotFound.

    `_completing` has the task of each upload whose digest is being computed, so that a client that sends its last bytes
    again and again causes one reading. It is bounded by the uploads of all tenants; each task ends itself.
    """

    def __init__(self, environment: Environment, requests: NamedRequests) -> None:
        """Takes the ports, and what it shares with other use cases."""
        self._environment = environment
        self._store = environment.store.uploads
        self._settings = environment.settings.files
        self._requests = requests
        self._completing: dict[tuple[str, str], asyncio.Task[Upload]] = {}
        self._digests = FairSemaphore(MAX_DIGESTS, tenant_limit=MAX_DIGESTS)
        """Limits the concurrent digests; each counts as one, and tenants take turns."""

    async def create(self, principal: Principal, new: NewUpload) -> Upload:
        """Creates an upload.

        Idempotent when the request is named: a retry gets the present state of the upload. Continues when it is
        cancelled.

        Raises:
            InvalidRequest: a value is wrong, or the request's name was used for another one.
            MessageTooLarge: the announced size is over the limit.
            TooManyUploads: the tenant may not have more, or deletes faster than space can be freed.
            QuotaExceeded: the tenant may not store the announced size.
        """
        answer = await self._requests.once(principal, new, lambda: self._create(principal, new))
        return await self.get(principal, answer.upload_id) if isinstance(answer, Receipt) else answer

    async def get(self, principal: Principal, upload_id: str) -> Upload:
        """Returns an upload."""
        return await self._store.upload(principal.tenant, upload_id)

    async def write(self, principal: Principal, upload_id: str, chunk: Chunk) -> Upload:
        """Stores bytes, and completes the upload with the last ones.

        Idempotent: bytes that are already stored are compared. Safe to cancel: work that has begun continues, and a
        chunk is stored completely or not at all.

        Raises:
            UploadOffsetOutOfRange: bytes before these are missing, or these would follow the last ones.
            InvalidRequest: the bytes differ from the stored ones, or are not as many as announced.
            MessageTooLarge: the upload would be over the limit.
            QuotaExceeded: the tenant may not store more.
        """
        upload = await self._store.upload(principal.tenant, upload_id)
        self._check_size(upload, chunk)
        expires_at = self._environment.clock() + self._settings.upload_expiry
        most = self._max_stored_bytes(principal.tenant)
        written = await asyncio.shield(self._store.write(principal.tenant, upload_id, chunk, expires_at, most))
        if written.is_sealed and not written.is_complete:
            written = await self._completed(written)
        return written

    async def delete(self, principal: Principal, upload_id: str) -> None:
        """Removes an upload. Continues when it is cancelled."""
        await asyncio.shield(self._store.remove(principal.tenant, upload_id))

    async def aclose(self) -> None:
        """Ends the digests that are being computed; they are computed again when the last bytes come again."""
        await end(tuple(self._completing.values()))

    async def _create(self, principal: Principal, new: NewUpload) -> Upload:
        if new.mime and not is_media_type(new.mime):
            raise InvalidRequest.of("mime", "is not a media type such as application/zip")
        self._check_total("size_bytes", new.size_bytes)
        now = self._environment.clock()
        upload = Upload(
            upload_id=self._environment.new_id("upl"),
            tenant=principal.tenant,
            subject=principal.subject,
            mime=new.mime,
            filename=PurePosixPath(new.filename).name,
            size_bytes=new.size_bytes,
            created_at=now,
            expires_at=now + self._settings.upload_expiry,
        )
        work = receipt_record(principal, new, Receipt(session_id="", upload_id=upload.upload_id))
        record = next((change for change in work.changes if isinstance(change, RecordRequest)), None)
        limits = UploadLimits(
            max_uploads=self._settings.max_uploads,
            max_removed_bytes=self._settings.max_upload_bytes,
            max_stored_bytes=self._max_stored_bytes(principal.tenant),
        )
        return await asyncio.shield(self._store.create(upload, limits, record))

    def _check_size(self, upload: Upload, chunk: Chunk) -> None:
        self._check_total("data", chunk.end)
        announced = upload.size_bytes
        if not announced:
            return
        sizes = {"sizeBytes": str(announced), "receivedBytes": str(upload.received_bytes)}
        if chunk.end > announced:
            raise InvalidRequest.of("data", f"ends at {chunk.end}, and {announced} bytes were announced", **sizes)
        if chunk.is_last and chunk.end < announced:
            raise InvalidRequest.of("last", f"comes at {chunk.end}, and {announced} bytes were announced", **sizes)

    def _check_total(self, field: str, size_bytes: int) -> None:
        limit = self._settings.max_upload_bytes
        if size_bytes > limit:
            raise MessageTooLarge.over("files.max_upload_bytes", limit, field, size_bytes)

    def _max_stored_bytes(self, tenant: str) -> int:
        return self._environment.settings.quotas_of(tenant).max_stored_bytes or 0

    async def _completed(self, upload: Upload) -> Upload:
        """Returns a sealed upload with its digest. Concurrent callers share one reading, which continues
        without them.
        """
        key = upload.tenant, upload.upload_id
        task = self._completing.get(key)
        if task is None:
            task = self._completing[key] = asyncio.create_task(
                self._complete(upload),
                name="upload digest",
            )
            task.add_done_callback(lambda done: self._complete_ended(key, done))
        return await asyncio.shield(task)

    def _complete_ended(self, key: tuple[str, str], task: asyncio.Task[Upload]) -> None:
        del self._completing[key]
        retrieve(task)

    async def _complete(self, upload: Upload) -> Upload:
        digest = hashlib.sha256()
        async with self._digests.held(upload.tenant, 1):
            async for piece in self._store.pieces(upload.tenant, upload.upload_id):
                await asyncio.to_thread(digest.update, piece)
        return await asyncio.shield(self._store.complete(upload.tenant, upload.upload_id, digest.hexdigest()))


class UploadExpiry:
    """A task that removes expired uploads of all tenants: at the start and every minute, a bounded number at a time."""

    def __init__(self, environment: Environment, clock: Clock | None = None) -> None:
        """Takes the store, and the clock that decides what has expired: a patient one; None uses the environment's."""
        self._store = environment.store.uploads
        self._clock = clock or environment.clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the task."""
        self._task = asyncio.create_task(self._run(), name="upload expiry")

    async def aclose(self) -> None:
        """Ends the task. Idempotent."""
        await end([self._task])

    async def _run(self) -> None:
        while True:
            await self._remove_expired()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def _remove_expired(self) -> None:
        try:
            while await asyncio.shield(self._store.remove_expired(self._clock())):
                pass
        except (StorageError, ShuttingDown):
            return  # for example on a full disk; the next check, or the next start, tries again


class Files:
    """The use cases about stored files."""

    def __init__(self, environment: Environment) -> None:
        """Takes the ports."""
        self._environment = environment

    async def read(self, principal: Principal, session_id: str, sha256: str) -> bytes:
        """Returns the bytes of a file that a message of the session refers to.

        Raises:
            SessionNotFound: there is no such session.
            StoredFileNotFound: no message of the session refers to such a file.
            StorageError: the file could not be read.
        """
        content = await self._environment.store.of(principal.tenant).session_file(session_id, sha256)
        if content is None:
            raise StoredFileNotFound(sha256)
        return content
