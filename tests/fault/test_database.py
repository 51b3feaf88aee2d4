"""Trouble with the database file."""

import asyncio
import contextlib
import hashlib
import sqlite3
from pathlib import Path

import grpc
import pytest

from opencode.file.upload_pb2 import WriteUploadRequest
from opencode.message.content_pb2 import MESSAGE_TYPE_HOST
from opencode.message.message_pb2 import AppendMessageRequest
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    messages_of,
    new_session,
    refused,
    session_of,
    streamed,
    talk,
    text,
)
from tests.support.servers.process import ServerProcess, server_process
from tests.support.servers.running import Client, connect, running_server
from turnwire.storage.sqlite import store as sqlite_store


async def test_file_is_free_after_a_kill(tmp_path: Path) -> None:
    """The lock goes with its process."""
    async with server_process(tmp_path) as server:
        await server.kill()
    async with server_process(tmp_path) as server, connect(server.address) as client:
        await talk(client, "hello")


@pytest.fixture
async def opened(monkeypatch: pytest.MonkeyPatch) -> list[sqlite_store.SqliteStore]:
    """Collects the stores that are opened, to reach their writing connection."""
    stores: list[sqlite_store.SqliteStore] = []
    original = sqlite_store.SqliteStore.open.__func__

    async def remember(cls: type, *arguments: object, **named: object) -> sqlite_store.SqliteStore:
        stores.append(await original(cls, *arguments, **named))
        return stores[-1]

    monkeypatch.setattr(sqlite_store.SqliteStore, "open", classmethod(remember))
    return stores


async def limit_pages(store: sqlite_store.SqliteStore, more: int) -> None:
    """Lets the database grow by so many pages, or by as many as it likes (0)."""

    def limit(db: sqlite3.Connection) -> None:
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages + more if more else 2**31}")

    await store._writing.run(limit)


def note(session_id: str, size: int) -> AppendMessageRequest:
    """Returns the request that stores a host message."""
    return AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_HOST, parts=[text("x" * size)])


async def test_full_disk_refuses_and_loses_nothing(tmp_path: Path, opened: list[sqlite_store.SqliteStore]) -> None:
    """RESOURCE_EXHAUSTED STORAGE_FULL, nothing stored; with room again the server goes on by itself."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        session_id = (await talk(client, "hello")).session_id
        before = await messages_of(client, session_id)
        await limit_pages(opened[0], 2)
        refusal = await refused(client.messages.AppendMessage(note(session_id, 200_000)))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "STORAGE_FULL")
        assert await messages_of(client, session_id) == before
        await limit_pages(opened[0], 0)
        await client.messages.AppendMessage(note(session_id, 200_000))
        await talk(client, "again", session_id)
        assert len(await messages_of(client, session_id)) == len(before) + 3


async def test_upload_goes_on_after_a_full_disk(tmp_path: Path, opened: list[sqlite_store.SqliteStore]) -> None:
    """A piece that finds no room is refused as a whole, and the same piece is stored once there is room again."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        upload_id = (await client.uploads.CreateUpload()).upload.upload_id
        first = WriteUploadRequest(upload_id=upload_id, data=b"1234")
        before = (await client.uploads.WriteUpload(first)).upload
        await limit_pages(opened[0], 2)
        piece = WriteUploadRequest(upload_id=upload_id, offset=4, data=bytes(10**6), last=True)
        refusal = await refused(client.uploads.WriteUpload(piece))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "STORAGE_FULL")
        assert (await client.uploads.GetUpload(upload_id=upload_id)).upload == before
        await limit_pages(opened[0], 0)
        complete = (await client.uploads.WriteUpload(piece)).upload
        assert complete.sha256 == hashlib.sha256(b"1234" + bytes(10**6)).hexdigest()


@pytest.mark.slow
async def test_turn_survives_a_full_disk(tmp_path: Path, opened: list[sqlite_store.SqliteStore]) -> None:
    """A turn whose text finds no room ends once there is room again, and the session is usable."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        session_id = await new_session(client)
        stream = await start_and_fill(client, session_id, opened[0])
        await limit_pages(opened[0], 0)
        async for _ in stream:
            pass
        await talk(client, "again", session_id)
        session = await session_of(client, session_id)
        assert not session.HasField("active_turn_id")


async def start_and_fill(client: Client, session_id: str, store: sqlite_store.SqliteStore) -> object:
    """Starts a long answer and takes the room away once it streams."""
    stream = streamed(client, ask("/words 20000\n/sleep 0.5\n/words 20000", session_id))
    async for response in stream:
        if any(event.HasField("part_delta") for event in response.events):
            break
    await limit_pages(store, 1)
    return stream


async def test_deletion_from_a_locked_database_does_not_hold_the_stop(
    tmp_path: Path, opened: list[sqlite_store.SqliteStore]
) -> None:
    """The end of the session's turn is written again and again, but no longer than the server runs."""
    async with contextlib.AsyncExitStack() as running:
        server = await running.enter_async_context(running_server(tmp_path))
        path = tmp_path / "turnwire.db"
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as outsider:
            client = await running.enter_async_context(connect(server.address))
            session_id = (await client.messages.SendMessage(ask(FOREVER))).session_id
            await opened[0]._writing.run(lambda db: db.execute("PRAGMA busy_timeout = 0"))
            outsider.execute("BEGIN IMMEDIATE")
            deletion = client.sessions.DeleteSession(session_id=session_id)
            reason = ""
            while reason != "SESSION_NOT_FOUND":  # the deletion has not begun
                reason = (await refused(client.messages.SendMessage(ask("hello", session_id)))).reason
            await asyncio.wait_for(running.aclose(), 200)
            deletion.cancel()


async def test_database_of_another_program_is_refused(tmp_path: Path) -> None:
    """It is left as it is."""
    with sqlite3.connect(tmp_path / "turnwire.db") as db:
        db.execute("CREATE TABLE sessions (a)")
    with pytest.raises(RuntimeError, match="not a Turnwire database"):
        await ServerProcess.start(tmp_path)


async def test_session_survives_a_deletion_that_fails(tmp_path: Path, opened: list[sqlite_store.SqliteStore]) -> None:
    """The database refuses the deletion; the session takes messages afterwards."""
    trigger = "CREATE TEMP TRIGGER stop BEFORE DELETE ON main.sessions BEGIN SELECT raise(ABORT, 'no'); END"
    async with running_server(tmp_path) as server, connect(server.address) as client:
        session_id = await new_session(client)
        await talk(client, "hello", session_id)
        await opened[0]._writing.run(lambda db: db.execute(trigger))
        await refused(client.sessions.DeleteSession(session_id=session_id))
        await opened[0]._writing.run(lambda db: db.execute("DROP TRIGGER temp.stop"))
        await talk(client, "still here", session_id)
