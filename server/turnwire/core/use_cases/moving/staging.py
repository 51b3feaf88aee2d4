"""Sessions that are stored in parts, so that a long one does not hold up the commits of others."""

import asyncio
from asyncio import Future
from collections.abc import Iterable, Iterator, Sequence

from turnwire.core.environment import Environment
from turnwire.core.work import Work
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import SessionNotFound, ShuttingDown, StorageError
from turnwire.domain.principal import staging_name
from turnwire.ports.commit import (
    AdoptSession,
    Change,
    Committed,
    DropStaged,
    MoveFiles,
    PutFile,
    PutMessage,
    PutSession,
)

PART_CHANGES = 100
PART_BYTES = 2**20
"""Of one commit: others wait some tens of milliseconds for it at most."""
PART_WEIGHT = 256
"""Bytes that one more part of a message counts as: a row takes time however short it is."""

RETRY_SECONDS = 60.0
"""After a commit that failed, as on a full disk, while leftovers are dropped."""


class Staging:
    """Stores sessions in parts, and drops what was not adopted.

    `_leftovers` has what to drop, by tenant and id: those of a dead process at the start, and each session that was
    given up, or that is large and was deleted. The one task of `start` drops them in small commits; `aclose` ends it,
    and the next start goes on. Between them are events, which are set when all before them are gone.
    """

    def __init__(self, environment: Environment) -> None:
        """Takes the ports."""
        self._environment = environment
        self._leftovers: asyncio.Queue[tuple[str, str] | asyncio.Event] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Looks for what a dead process has left, and starts to drop it. Raises StorageError."""
        for tenant, staged_id in await self._environment.store.staged_sessions():
            self.drop(tenant, staged_id)
        self._task = asyncio.create_task(self._run(), name="staged sessions")

    async def aclose(self) -> None:
        """Ends the task. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def begin(self, tenant: str) -> "StagedSession":
        """Returns a new session to store in parts for a tenant."""
        return StagedSession(self._environment, self, tenant)

    async def settled(self) -> None:
        """Returns when nothing that was given up before, by this or a dead process, has an id any more.

        It does not wait for what is given up later. Safe to cancel.
        """
        gone = asyncio.Event()
        self._leftovers.put_nowait(gone)
        await gone.wait()

    def drop(self, tenant: str, staged_id: str) -> None:
        """Removes a session that was staged for a tenant, a little at a time, later."""
        self._leftovers.put_nowait((tenant, staged_id))

    async def _run(self) -> None:
        while True:
            match await self._leftovers.get():
                case (tenant, staged_id):
                    await self._drop(tenant, staged_id)
                case gone:
                    gone.set()

    async def _drop(self, tenant: str, staged_id: str) -> None:
        while True:
            work = Work((DropStaged(PART_CHANGES),))
            try:
                done = await self._environment.commit(tenant, staged_id, work, self._environment.clock())
            except (SessionNotFound, ShuttingDown):  # the next start drops what is left
                return
            except StorageError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if not done.is_unfinished:
                return


class StagedSession:
    """One session while it is stored in parts. Used by one task."""

    def __init__(self, environment: Environment, staging: Staging, tenant: str) -> None:
        """Use `Staging.begin`."""
        self._tenant = tenant
        self._environment = environment
        self._staging = staging
        self._id = environment.new_id("stg")
        self._is_stored = False
        self._storing: Future[Committed] | None = None  # the last part; the one before it is durable

    async def put(self, changes: Sequence[Change]) -> None:
        """Stores changes in one commit. Returns when those before are durable: the next ones can be made meanwhile.

        Raises:
            StorageError: this or an earlier part could not be stored.
        """
        await self.stored()
        now = self._environment.clock()
        first: tuple[Change, ...] = ()
        if not self._is_stored:
            self._is_stored = True
            name = staging_name(self._id, self._tenant)
            placeholder = Session(session_id=self._id, tenant=name, created_at=now, updated_at=now)
            first = (PutSession(placeholder),)
        self._storing = self._environment.commit(self._tenant, self._id, Work((*first, *changes)), now)
        self._storing.add_done_callback(_retrieve)

    async def stored(self) -> None:
        """Returns when all that was put is durable. Raises StorageError when something could not be stored."""
        if self._storing is not None:
            await asyncio.shield(self._storing)

    async def give_files(self) -> None:
        """Gives the session's files to the tenant. Call it before `adopt` when there are any."""
        await self.stored()
        work = Work((MoveFiles(self._tenant, PART_BYTES),))
        is_unfinished = True
        while is_unfinished:
            moving = self._environment.commit(self._tenant, self._id, work, self._environment.clock())
            is_unfinished = (await asyncio.shield(moving)).is_unfinished

    def adopt(self, session: Session, messages: int, work: Work) -> "Future[Committed]":
        """Makes the session what it is to be, with further work in the same commit.

        Args:
            session: What it is to be; at least one `put` came before, and all are `stored`.
            messages: How many messages it has.
            work: For instance its events.

        Returns:
            The store's own future, which nobody may cancel.
        """
        adopting = Work((AdoptSession(session, self._id, messages),)) + work
        return self._environment.commit(self._tenant, session.session_id, adopting, self._environment.clock())

    def drop(self) -> None:
        """Gives the session up."""
        if self._is_stored:
            self._staging.drop(self._tenant, self._id)


def _retrieve(storing: "Future[Committed]") -> None:
    """Takes the error of a part, so that asyncio does not log it when nobody waits for the part any more."""
    if not storing.cancelled():
        storing.exception()


def parts_of(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Yields changes in parts for `StagedSession.put`, in order."""
    part, size = list[Change](), 0
    for change in changes:
        part.append(change)
        size += len(change.content) if isinstance(change, PutFile) else 0
        size += weight(change.message) if isinstance(change, PutMessage) else 0
        if len(part) >= PART_CHANGES or size >= PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def weight(message: Message) -> int:
    """Returns about how many bytes a message has, without encoding it. Each part counts as storing it takes time."""
    size = 0
    for part in message.parts:
        texts = (getattr(part.content, name, "") for name in ("text", "output", "input_json"))
        size += PART_WEIGHT + len(part.provider_state or "") + sum(len(text or "") for text in texts)
    return size
