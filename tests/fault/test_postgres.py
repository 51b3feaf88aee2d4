"""The database server, or the connection to it, fails while a server runs."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import psycopg
import pytest

from opencode.message.content_pb2 import MESSAGE_TYPE_HOST
from opencode.message.message_pb2 import AppendMessageRequest
from tests.support.clients.conversation import (
    ask,
    messages_of,
    new_session,
    refused,
    text,
    turn_ended,
    watching,
    words_of,
)
from tests.support.fakes.identity import START, token_record
from tests.support.oracles.ledger import Ledger
from tests.support.postgres import ACCOUNT, PostgresServer
from tests.support.servers.postgres_proxy import Cut, PostgresProxy
from tests.support.servers.process import ServerProcess, server_process
from tests.support.servers.running import Client, connect
from turnwire.domain.errors import StorageError
from turnwire.storage.postgres.connection import opened
from turnwire.storage.postgres.schema import schema_version
from turnwire.storage.sql.accounts import wrong_stored_bytes, wrong_totals
from turnwire.storage.tokens import open_tokens

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("TURNWIRE_FAULT_ROUNDS", "3"))
"""How often faults that come at any moment are tried."""

JSON_LINES = "[log]\nformat = 'json'\n"


def storage(url: str) -> str:
    """Returns the configuration of a server on a database."""
    return f'{JSON_LINES}[storage]\nurl = "{url}"\n'


def note(session_id: str, size: int = 1000, request_id: str = "") -> AppendMessageRequest:
    """Returns the request that stores a host message."""
    parts = [text("x" * size)]
    return AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_HOST, parts=parts, request_id=request_id)


def lines(server: ServerProcess, event: str) -> list[str]:
    """Returns the lines of a log that have an event."""
    return [line for line in server.stderr if event in line]


async def check_after(folder: Path, url: str, ledger: Ledger) -> None:
    """Starts a server without faults, asks it for all that was promised, and looks at what the database counts."""
    async with server_process(folder, storage(url)) as server, connect(server.address) as client:
        await ledger.check(client)
        assert await server.terminate() == 0
    assert await asyncio.to_thread(_miscounted, url) == []  # not on this loop, which may be what the proxy runs on


def _miscounted(url: str) -> list[str]:
    with contextlib.closing(opened(url, read_only=True)) as db:
        return [*wrong_stored_bytes(db), *wrong_totals(db)]


@pytest.fixture
async def proxy(postgres: PostgresServer) -> AsyncIterator[PostgresProxy]:
    """A proxy before a new database."""
    database = postgres.new_database().partition("?")[0].rpartition("/")[2]
    async with PostgresProxy(postgres.folder, database) as running:
        yield running


async def test_a_commit_that_did_not_arrive_is_refused(tmp_path: Path, proxy: PostgresProxy) -> None:
    """The connection ends with the COMMIT on its way: nothing is stored, the caller hears so, the server goes on."""
    ledger = Ledger()
    async with server_process(tmp_path, storage(proxy.url)) as server, connect(server.address) as client:
        session_id = await ledger.begin(client)
        await ledger.say(client, session_id, "before")
        listed = await messages_of(client, session_id)
        proxy.cut, proxy.mark = Cut.BEFORE, b"once"
        refusal = await refused(client.messages.AppendMessage(note(session_id, request_id="once")))
        assert proxy.is_cut.is_set()
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STORAGE_BUSY")
        assert await messages_of(client, session_id) == listed
        again = await client.messages.AppendMessage(note(session_id, request_id="once"))
        assert [m.message_id for m in await messages_of(client, session_id)][len(listed) :] == [again.message_id]
        assert await ledger.say(client, session_id, "after")
        assert await server.terminate() == 0
    await check_after(tmp_path, proxy.url, ledger)


async def test_a_commit_whose_answer_was_lost_is_stored_once(tmp_path: Path, proxy: PostgresProxy) -> None:
    """The caller hears that the outcome is unknown, the server stops, and the next one knows the request's answer."""
    ledger = Ledger()
    async with server_process(tmp_path, storage(proxy.url)) as server, connect(server.address) as client:
        session_id = await ledger.begin(client)
        await ledger.say(client, session_id, "before")
        proxy.cut, proxy.mark = Cut.AFTER, b"once"
        refusal = await refused(client.messages.AppendMessage(note(session_id, request_id="once")))
        assert proxy.is_cut.is_set()
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "OUTCOME_UNKNOWN")
        assert await server.ended() == 1
        assert len(lines(server, "database_lost")) == 1
    async with server_process(tmp_path, storage(proxy.url)) as server, connect(server.address) as client:
        before = await messages_of(client, session_id)
        again = await client.messages.AppendMessage(note(session_id, request_id="once"))
        assert [m.message_id for m in before].count(again.message_id) == 1
        assert await messages_of(client, session_id) == before
        await server.terminate()
    await check_after(tmp_path, proxy.url, ledger)


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("number", range(ROUNDS))
async def test_cut_while_messages_are_answered(tmp_path: Path, proxy: PostgresProxy, cut: Cut, number: int) -> None:
    """At any point of a transaction, each message counts once, and acknowledged ones are there."""
    ledger = Ledger()
    async with server_process(tmp_path, storage(proxy.url)) as server, connect(server.address) as client:
        sessions = [await ledger.begin(client) for _ in range(3)]

        async def run(session_id: str) -> None:
            for turn in range(6):
                if turn == 1 + number and session_id == sessions[0]:
                    proxy.cut = cut
                await ledger.say(client, session_id, f"/words 30\n{turn}", waits=turn % 2 == 0)

        await asyncio.gather(*map(run, sessions))
        assert proxy.is_cut.is_set()
        if cut is Cut.AFTER:
            assert await server.ended() == 1
        else:
            assert await server.terminate() == 0
    await check_after(tmp_path, proxy.url, ledger)


async def test_connections_that_are_ended_cost_no_message(tmp_path: Path, postgres: PostgresServer) -> None:
    """`pg_terminate_backend` at any moment, of the connections that write and read: what is refused may be repeated."""
    url, ledger = postgres.new_database(), Ledger()
    ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    others = f"{ends} AND pid <> pg_backend_pid()"
    async with server_process(tmp_path, storage(url)) as server, connect(server.address) as client:
        sessions = [await ledger.begin(client) for _ in range(3)]
        with psycopg.connect(url, autocommit=True) as operator:

            async def run(session_id: str) -> None:
                for turn in range(4 * ROUNDS):
                    await ledger.say(client, session_id, f"/words 30\n{turn}", waits=False)

            async def end(done: asyncio.Event) -> int:
                ended = 0
                while not done.is_set():
                    ended += len(operator.execute(others).fetchall())
                    await ledger.say(client, sessions[0], f"between {ended}", waits=False)
                return ended

            done = asyncio.Event()
            ending = asyncio.create_task(end(done))
            await asyncio.gather(*map(run, sessions))
            done.set()
            assert await ending > 0
        with contextlib.suppress(ProcessLookupError):
            server.send_signal(signal.SIGTERM)
        # one that has heard the end of a COMMIT that is stored stops by itself
        assert await server.ended() == len(lines(server, "database_lost"))
    await check_after(tmp_path, url, ledger)


async def test_the_database_restarts_under_a_running_server(tmp_path: Path) -> None:
    """A stop like a crash, in the middle of an answer, and a time without it: calls are refused, then all goes on."""
    postgres, ledger = await asyncio.to_thread(PostgresServer), Ledger()
    try:
        url = postgres.new_database()
        async with server_process(tmp_path, storage(url)) as server, connect(server.address) as client:
            session_id = await ledger.begin(client)
            await ledger.say(client, session_id, "before")
            other = await new_session(client)
            running = await client.messages.SendMessage(ask("/rate 200\n/words 400", other))
            async with watching(client, other, after_sequence=running.sequence) as watch:
                await watch.until_text()
            await asyncio.to_thread(postgres.stop)
            refusal = await refused(client.messages.AppendMessage(note(session_id)))
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STORAGE_BUSY")
            while len(lines(server, "not_saved_yet")) < 3:
                await asyncio.sleep(0.05)
            await asyncio.to_thread(postgres.start)
            await turn_ended(client, running)
            answer = [words_of(m) for m in await messages_of(client, other)][-1]
            assert len(answer.split()) == 400
            assert await ledger.say(client, session_id, "after")
            assert await server.terminate() == 0
            assert not lines(server, '"turn_not_saved"') + lines(server, "Traceback")
        await check_after(tmp_path, url, ledger)
    finally:
        await asyncio.to_thread(postgres.close)


async def test_a_newer_schema_is_refused(tmp_path: Path, postgres: PostgresServer) -> None:
    """One behind the next release's: the message says which version it has, and the database is as it was."""
    url = postgres.new_database()
    async with server_process(tmp_path, storage(url)) as server:
        assert await server.terminate() == 0
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE schema_version SET version = 99")
        with pytest.raises(RuntimeError, match="schema version 99, this version knows"):
            await ServerProcess.start(tmp_path, storage(url))
        assert db.execute("SELECT version FROM schema_version").fetchall() == [(99,)]


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of its own with 48 MiB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root mounts a file system")
    folder = Path(tempfile.mkdtemp(prefix="turnwire-small-"))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", folder], check=False).returncode:
        pytest.skip("this machine mounts no file system")
    shutil.chown(folder, ACCOUNT)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
    folder.rmdir()


async def _notes(client: Client, session_id: str) -> None:
    """Stores messages until one is refused: the tables have some room still."""
    while True:
        await client.messages.AppendMessage(note(session_id, 500_000))


async def test_a_full_disk_of_the_database_refuses_and_passes(tmp_path: Path, small_disk: Path) -> None:
    """As on a full disk with a file: reading goes on, and what runs ends when there is room again."""
    postgres, ledger = await asyncio.to_thread(PostgresServer), Ledger()
    try:
        postgres.execute("postgres", f"CREATE TABLESPACE small LOCATION '{small_disk}'")
        postgres.execute("postgres", "CREATE DATABASE small TABLESPACE small")
        url = postgres.url("small")
        async with server_process(tmp_path, storage(url)) as server, connect(server.address) as client:
            session_id = await ledger.begin(client)
            await ledger.say(client, session_id, "before")
            running = await client.messages.SendMessage(ask("/rate 1000\n/words 20000", await new_session(client)))
            ballast = small_disk / "ballast"
            with ballast.open("wb") as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(65_536))
                    file.flush()
            refusal = await refused(_notes(client, session_id))
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "STORAGE_FULL")
            listed = await messages_of(client, session_id)
            while not lines(server, "not_saved_yet"):
                await asyncio.sleep(0.05)
            ballast.unlink()
            await turn_ended(client, running)
            assert await messages_of(client, session_id) == listed
            assert await ledger.say(client, session_id, "after")
            assert await server.terminate() == 0
            assert not lines(server, '"turn_not_saved"') + lines(server, "Traceback")
        await check_after(tmp_path, url, ledger)
    finally:
        await asyncio.to_thread(postgres.close)


async def test_tokens_are_read_again_when_their_connection_was_lost(postgres_url: str) -> None:
    """One look fails, and leaves what is known; the next one connects again, and reads whatever there is now."""
    async with contextlib.aclosing(await open_tokens(postgres_url)) as server:
        await server.add(token_record(1))
        assert await server.all() == (token_record(1),) and not await server.changed()
        with psycopg.connect(postgres_url, autocommit=True) as db:
            others = "datname = current_database() AND pid <> pg_backend_pid()"
            db.execute(f"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE {others}")
        with pytest.raises(StorageError):
            await server.changed()
        assert await server.changed() and await server.all() == (token_record(1),)
        await server.note_uses({"tok_1": START})


async def test_listing_tokens_makes_no_tables(postgres_url: str) -> None:
    """Only what begins to use a database makes it one of Turnwire."""
    with pytest.raises(StorageError, match="the database has no tokens yet"):
        await open_tokens(postgres_url, create=False)
    with contextlib.closing(opened(postgres_url, read_only=True)) as db:
        assert schema_version(db) == 0
