"""Promises to clients, and the check that a server keeps them: the invariants after a fault.

A client sends with names, uploads, deletes and watches through a ledger, which notes what was acknowledged. After the
fault `check` asks another server for all of it.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from opencode.file.upload_pb2 import WriteUploadRequest
from opencode.message.content_pb2 import MESSAGE_STATUS_QUEUED, MESSAGE_STATUS_STREAMING, MESSAGE_TYPE_USER
from opencode.message.message_pb2 import DISPOSITION_DUPLICATE
from tests.support.clients.conversation import ask, messages_of, refused, session_of, turn_ended, watching, words_of
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.running import Client

NEVER = 1 << 62
"""The moment of what was not acknowledged."""


@dataclass
class _Sent:
    """A message that was sent by a name."""

    words: str
    request_id: str
    message_id: str = ""
    at: int = NEVER


@dataclass
class _Session:
    """A session, and what its client knows."""

    session_id: str
    at: int
    sent: list[_Sent] = field(default_factory=list)
    told: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """Events by sequence: when they came, and their bytes."""
    deleted_at: int = NEVER
    is_deleting: bool = False


@dataclass
class _Upload:
    upload_id: str
    at: int
    received: list[tuple[int, int]] = field(default_factory=list)
    """When it was answered, and how many bytes."""


class Ledger:
    """The notes of some clients. `now` tells the moment, such as the length of the disk's record."""

    def __init__(self, now: Callable[[], int] = lambda: 0) -> None:
        self._now = now
        self._sessions: list[_Session] = []
        self._uploads: list[_Upload] = []
        self.refusals: list[grpc.aio.AioRpcError] = []
        """Errors of calls that have failed."""

    @property
    def acknowledged(self) -> int:
        """Number of acknowledged messages."""
        return sum(sent.at < NEVER for session in self._sessions for sent in session.sent)

    async def begin(self, client: Client) -> str:
        """Creates a session."""
        created = await client.sessions.CreateSession()
        self._sessions.append(_Session(created.id, self._now()))
        return str(created.id)

    async def say(self, client: Client, session_id: str, words: str, *, waits: bool = True) -> bool:
        """Sends a message by a name and waits for its turn's end, if wished; returns whether it was acknowledged."""
        session = self._session(session_id)
        sent = _Sent(words, f"{session_id}-{len(session.sent)}")
        session.sent.append(sent)
        try:
            accepted = await client.messages.SendMessage(ask(words, session_id, request_id=sent.request_id))
            sent.message_id, sent.at = accepted.message_id, self._now()
            if waits:
                await turn_ended(client, accepted)
        except grpc.aio.AioRpcError as error:
            self.refusals.append(error)
        return sent.at < NEVER

    async def follow(self, client: Client, session_id: str) -> None:
        """Watches a session until the connection ends, or the caller cancels it."""
        told = self._session(session_id).told
        try:
            async with watching(client, session_id, after_sequence=0) as watch:
                while await watch.batch():
                    now = self._now()
                    told.update({e.sequence: (now, e.SerializeToString()) for e in watch.events if e.sequence})
                    watch.events.clear()
        except grpc.aio.AioRpcError as error:
            self.refusals.append(error)

    async def upload(self, client: Client, size_bytes: int, piece_bytes: int, chance: random.Random) -> None:
        """Uploads random bytes in pieces; ends at the first that is refused."""
        try:
            created = await client.uploads.CreateUpload(size_bytes=size_bytes)
            upload = _Upload(created.upload.upload_id, self._now())
            self._uploads.append(upload)
            offset = 0
            while offset < size_bytes:
                data = chance.randbytes(min(piece_bytes, size_bytes - offset))
                is_last = offset + len(data) == size_bytes
                request = WriteUploadRequest(upload_id=upload.upload_id, offset=offset, data=data, last=is_last)
                offset = (await client.uploads.WriteUpload(request)).upload.received_bytes
                upload.received.append((self._now(), offset))
        except grpc.aio.AioRpcError as error:
            self.refusals.append(error)

    async def delete(self, client: Client, session_id: str) -> None:
        """Deletes a session."""
        session = self._session(session_id)
        session.is_deleting = True
        try:
            await client.sessions.DeleteSession(session_id=session_id)
            session.deleted_at = self._now()
        except grpc.aio.AioRpcError as error:
            self.refusals.append(error)

    async def check(self, client: Client, until: int = NEVER - 1) -> None:
        """Checks all that was promised up to a moment: messages, names, folds, events, uploads, deletions.

        Sends every message again by its name, so that it counts once whether it was acknowledged or not. May be called
        for several servers that go on from different moments.
        """
        await asyncio.gather(
            *(self._check(client, session, until) for session in self._sessions if session.at <= until)
        )
        for upload in self._uploads:
            if upload.at <= until:
                found = (await client.uploads.GetUpload(upload_id=upload.upload_id)).upload
                assert found.received_bytes >= max((n for at, n in upload.received if at <= until), default=0)

    def _session(self, session_id: str) -> _Session:
        return next(session for session in self._sessions if session.session_id == session_id)

    async def _check(self, client: Client, session: _Session, until: int) -> None:
        if session.deleted_at <= until:
            refusal = await refused(session_of(client, session.session_id))
            assert refusal.reason == "SESSION_NOT_FOUND", "a session that was deleted is there"
            return
        if session.is_deleting:  # it may be there, or not
            return
        for sent in session.sent:
            request = ask(sent.words, session.session_id, request_id=sent.request_id)
            again = await client.messages.SendMessage(request)
            if sent.at <= until:
                assert again.disposition == DISPOSITION_DUPLICATE, f"{sent.words!r} was acknowledged and is gone"
                assert again.message_id == sent.message_id
            await turn_ended(client, again)
        listed = await messages_of(client, session.session_id)
        assert not [m for m in listed if m.status in (MESSAGE_STATUS_STREAMING, MESSAGE_STATUS_QUEUED)]
        said = [words_of(message) for message in listed if message.type == MESSAGE_TYPE_USER]
        for sent in session.sent:
            assert said.count(sent.words) == 1, f"{sent.words!r} counts {said.count(sent.words)} times"
        fold = SessionFold(session.session_id)
        async with watching(client, session.session_id, fold, after_sequence=0) as watch:
            await watch.until_kind("caught_up")
        assert comparable(fold.listed()) == comparable(listed)
        later = {event.sequence: event.SerializeToString() for event in watch.events if event.sequence}
        for sequence, (at, event) in session.told.items():
            assert at > until or later.get(sequence) == event, f"event {sequence} was delivered and is another one now"
