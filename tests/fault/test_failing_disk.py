"""The disk fails while the server runs: errors, no room, read-only, slow, short and interrupted calls.

Whatever fails, nothing is acknowledged that is not kept; what may pass is refused, and the server goes on when it has
passed.
"""

import asyncio
import contextlib
import os
import random
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from opencode.message.content_pb2 import MESSAGE_TYPE_HOST
from opencode.message.message_pb2 import AbortSessionRequest, AppendMessageRequest
from opencode.session.session_pb2 import ListSessionsRequest
from opencode.transfer.transfer_pb2 import ExportSessionsRequest
from tests.support.clients.conversation import ask, messages_of, refused, session_of, talk, text, turn_ended
from tests.support.clients.signed_in import bearer
from tests.support.clients.web import WebClient, web_client
from tests.support.disk.failing import ERRORS, Call, Disk
from tests.support.oracles.ledger import Ledger
from tests.support.oracles.sound import problems
from tests.support.servers.commands import start_command
from tests.support.servers.mcp import own_port
from tests.support.servers.process import ServerProcess, server_process
from tests.support.servers.running import connect
from turnwire.domain.principal import Principal, Role
from turnwire.identity.access_tokens import new_token, token_hash
from turnwire.ports.identity.token_book import TokenRecord
from turnwire.storage.sqlite.tokens import TokenFile

ROUNDS = int(os.environ.get("TURNWIRE_FAULT_ROUNDS", "3"))
"""How often the disk fails at random calls."""

JSON_LINES = "[log]\nformat = 'json'\n"

pytestmark = pytest.mark.slow


def note(session_id: str, size: int = 1000) -> AppendMessageRequest:
    """Returns the request that stores a host message."""
    return AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_HOST, parts=[text("x" * size)])


def lines(server: ServerProcess, event: str) -> list[str]:
    """Returns the lines of a log that have an event."""
    return [line for line in server.stderr if event in line]


async def check_after(disk: Disk, ledger: Ledger) -> None:
    """Starts a server without faults, asks it for all that was promised, and examines the file."""
    disk.heal()
    async with server_process(disk.folder) as server, connect(server.address) as client:
        await ledger.check(client)
        assert await server.terminate() == 0
    assert problems(disk.database) == []


async def test_a_failed_sync_stops_the_server(disk: Disk) -> None:
    """Nobody knows what a later sync is worth: the message is refused, nothing more is stored, the exit code is 1."""
    ledger = Ledger()
    async with disk.server() as server, connect(server.address) as client:
        session_id = await ledger.begin(client)
        assert await ledger.say(client, session_id, "before")
        disk.fail(Call.SYNC, ERRORS["EIO"], suffix="-wal", count=1)
        refusal = await refused(client.messages.AppendMessage(note(session_id)))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.INTERNAL, "STORAGE_ERROR")
        assert refusal.metadata["path"] == str(disk.database)
        assert await server.ended() == 1
        assert len(lines(server, "database_lost")) == 1
    await check_after(disk, ledger)


async def test_a_failed_sync_of_the_file_is_made_up_for(disk: Disk) -> None:
    """The log keeps what the file could not take, and the next sync writes all of it again."""
    ledger = Ledger()
    async with disk.server() as server, connect(server.address) as client:
        session_id = await ledger.begin(client)
        rule = disk.fail(Call.SYNC, ERRORS["EIO"], suffix=".db")
        upload = ledger.upload(client, 12_000_000, 1_000_000, random.Random(1))
        await asyncio.gather(upload, ledger.say(client, session_id, "meanwhile"))
        assert disk.hits(rule) > 0
        assert not ledger.refusals
        await server.kill()
    await check_after(disk, ledger)


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        ("ENOSPC", grpc.StatusCode.RESOURCE_EXHAUSTED, "STORAGE_FULL"),
        ("EDQUOT", grpc.StatusCode.RESOURCE_EXHAUSTED, "STORAGE_FULL"),
        ("EROFS", grpc.StatusCode.INTERNAL, "STORAGE_ERROR"),
        ("EIO", grpc.StatusCode.INTERNAL, "STORAGE_ERROR"),
    ],
)
async def test_a_disk_that_takes_nothing_refuses_and_passes(
    disk: Disk, error: str, code: grpc.StatusCode, reason: str
) -> None:
    """Turns end when the disk takes something again, however long that is; reading goes on meanwhile."""
    ledger = Ledger()
    async with disk.server(JSON_LINES) as server, connect(server.address) as client:
        session_id = await ledger.begin(client)
        await ledger.say(client, session_id, "before")
        running = await client.messages.SendMessage(ask("/sleep 0.2\n/words 5000", await ledger.begin(client)))
        before = await messages_of(client, session_id)
        disk.fail(Call.WRITE, ERRORS[error])
        refusal = await refused(client.messages.AppendMessage(note(session_id)))
        assert (refusal.code, refusal.reason) == (code, reason)
        assert await messages_of(client, session_id) == before
        while len(lines(server, "not_saved_yet")) < 5:  # as often as it tries before it gives up work that is at fault
            await asyncio.sleep(0.05)
        disk.heal()
        await turn_ended(client, running)
        assert await ledger.say(client, session_id, "after")
        assert await server.terminate() == 0
        assert not lines(server, '"turn_not_saved"') + lines(server, "Traceback")
    await check_after(disk, ledger)


async def test_readiness_tells_whether_the_disk_takes_anything(disk: Disk) -> None:
    """From the first call that it refuses until it takes something again, although nobody else calls then."""

    async def asked(web: WebClient) -> tuple[int, bytes]:
        answer = await web.send("/readyz", verb="GET")
        return answer.status, answer.body

    with own_port() as port:
        toml = f'[web]\nlisten = "127.0.0.1:{port}"\n'
        async with (
            disk.server(toml) as server,
            connect(server.address) as client,
            web_client(f"http://127.0.0.1:{port}") as web,
        ):
            session_id = (await talk(client, "hello")).session_id
            assert await asked(web) == (200, b"ok\n")
            disk.fail(Call.WRITE, ERRORS["ENOSPC"])
            await refused(client.messages.AppendMessage(note(session_id)))
            for _ in range(3):
                assert await asked(web) == (503, b"the database cannot be written\n")
            assert (await web.send("/healthz", verb="GET")).status == 200
            disk.heal()
            while await asked(web) != (200, b"ok\n"):
                await asyncio.sleep(0.05)
            await client.messages.AppendMessage(note(session_id))


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT", "EIO", "EROFS"])
async def test_writes_fail_at_random(disk: Disk, chance: random.Random, error: str, number: int) -> None:
    """Each message and each piece of an upload is stored as a whole, or refused and not there."""
    ledger = Ledger()
    async with disk.server() as server, connect(server.address) as client:
        sessions = [await ledger.begin(client) for _ in range(3)]
        rule = disk.fail(Call.WRITE, ERRORS[error], permille=chance.choice((5, 30, 200)), seed=chance.getrandbits(32))

        async def run(session_id: str) -> None:
            for turn in range(8):
                await ledger.say(client, session_id, f"/words 200\n{turn}", waits=False)

        await asyncio.gather(*map(run, sessions), ledger.upload(client, 12_000_000, 1_000_000, chance))
        hits = disk.hits(rule)
        disk.heal()
        for session_id in sessions:
            assert await ledger.say(client, session_id, "again")
        await ledger.check(client)
        assert await server.terminate() == 0
        assert not lines(server, "Traceback")
    print(f"{hits} writes failed, {len(ledger.refusals)} calls were refused, {ledger.acknowledged} messages stored")
    await check_after(disk, ledger)


@pytest.mark.parametrize("call", [Call.READ, Call.WRITE])
async def test_interrupted_and_short_calls_are_repeated(disk: Disk, chance: random.Random, call: Call) -> None:
    """No caller hears of them."""
    ledger = Ledger()
    disk.fail(call, ERRORS["EINTR"], suffix="-wal", permille=200, seed=chance.getrandbits(32))
    disk.fail(call, ERRORS["EINTR"], suffix=".db", permille=200, seed=chance.getrandbits(32))
    disk.fail(call, suffix="-wal", permille=200, is_short=True, seed=chance.getrandbits(32))
    disk.fail(call, suffix=".db", permille=200, is_short=True, seed=chance.getrandbits(32))
    async with disk.server() as server, connect(server.address) as client:
        session_id = await ledger.begin(client)
        upload = ledger.upload(client, 12_000_000, 1_000_000, chance)
        await asyncio.gather(upload, *(ledger.say(client, session_id, f"/words 300\n{n}") for n in range(5)))
        await ledger.check(client)
        assert not ledger.refusals
        assert await server.terminate() == 0
    await check_after(disk, ledger)


async def test_a_slow_disk_holds_up_only_what_is_stored(disk: Disk) -> None:
    """While a sync lasts, other sessions are read, nothing is acknowledged, and nothing holds the event loop."""
    async with disk.server(f"{JSON_LINES}stuck_loop_seconds = 0.5\n") as server, connect(server.address) as client:
        session_id = (await talk(client, "hello")).session_id
        other = (await talk(client, "hello")).session_id
        rule = disk.fail(Call.SYNC, suffix="-wal", delay_ms=60_000)
        writing = asyncio.ensure_future(client.messages.AppendMessage(note(session_id)))
        while not disk.hits(rule):
            await asyncio.sleep(0)
        for _ in range(20):
            await session_of(client, other)
            assert len(await messages_of(client, other)) == 2
        assert not writing.done(), "acknowledged before it was synced"
        disk.heal()
        await writing
        assert len(await messages_of(client, session_id)) == 3
        assert await server.terminate() == 0
        assert not lines(server, "event_loop_stuck")


async def test_reads_that_fail_cost_their_own_call(disk: Disk) -> None:
    """A page that cannot be read refuses the call that needs it; the server goes on, and nothing is lost."""
    ledger = Ledger()
    async with server_process(disk.folder) as server, connect(server.address) as client:
        session_id = await ledger.begin(client)
        for number in range(3):
            await ledger.say(client, session_id, f"/words 2000\n{number}")
        assert await server.terminate() == 0
    async with disk.server() as server, connect(server.address) as client:
        disk.fail(Call.READ, ERRORS["EIO"], suffix="turnwire.db")
        refusal = await refused(messages_of(client, session_id))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.DATA_LOSS, "STORAGE_CORRUPT")
        disk.heal()
        assert len(await messages_of(client, session_id)) == 6
        await ledger.check(client)
        assert await server.terminate() == 0
        assert not lines(server, "Traceback") + lines(server, "database_lost")
    await check_after(disk, ledger)


@pytest.mark.parametrize("error", ["EACCES", "EMFILE", "EIO"])
async def test_an_export_that_cannot_open_the_database_is_refused(disk: Disk, error: str) -> None:
    """Each export opens it anew. Others go on, and so does the next export."""
    async with disk.server() as server, connect(server.address) as client:
        session_id = (await talk(client, "hello")).session_id
        disk.fail(Call.OPEN, ERRORS[error])
        request = ExportSessionsRequest(session_ids=[session_id])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in client.transfer.ExportSessions(request):
                pass
        assert caught.value.code() == grpc.StatusCode.INTERNAL
        await talk(client, "others go on", session_id)
        disk.heal()
        assert [piece async for piece in client.transfer.ExportSessions(request)]
        assert await server.terminate() == 0
        assert not lines(server, "Traceback")


async def test_an_export_without_room_for_its_spool_is_refused(disk: Disk) -> None:
    """STORAGE_FULL; nothing is left, and the next one works."""
    async with disk.server() as server, connect(server.address) as client:
        session_id = (await talk(client, "hello")).session_id
        await client.messages.AppendMessage(note(session_id, 3_000_000))  # more than is kept in memory
        disk.fail(Call.WRITE, ERRORS["ENOSPC"], suffix="unnamed")
        request = ExportSessionsRequest(session_ids=[session_id])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in client.transfer.ExportSessions(request):
                pass
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        disk.heal()
        assert [piece async for piece in client.transfer.ExportSessions(request)]
        assert await server.terminate() == 0
    names = {path.name for path in disk.folder.iterdir()}
    assert names == {"turnwire.db", "turnwire.db.lock", "turnwire.toml"}


async def backed_up(disk: Disk, target: Path) -> tuple[int, str]:
    """Runs `turnwire backup` on the disk and returns its exit code and what it said."""
    command = ("backup", str(disk.database), str(target))
    process = await start_command(*command, cwd=disk.folder, environ={**os.environ, **disk.environ}, forked=False)
    assert process.stderr is not None
    said = (await process.stderr.read()).decode()
    return await process.wait(), said


@pytest.mark.parametrize(("call", "error"), [(Call.WRITE, "ENOSPC"), (Call.SYNC, "EIO"), (Call.RENAME, "EIO")])
async def test_a_backup_is_whole_or_not_there(disk: Disk, call: Call, error: str) -> None:
    """One line says why; what it had begun is gone, and the next one works."""
    async with server_process(disk.folder) as server, connect(server.address) as client:
        await talk(client, "/words 5000")
        assert await server.terminate() == 0
    before = {path.name for path in disk.folder.iterdir()}
    target = disk.folder / "backup.db"
    disk.fail(call, ERRORS[error], suffix=".partial", after=3 if call == Call.WRITE else 0)
    code, said = await backed_up(disk, target)
    assert code == 1
    assert "Traceback" not in said
    assert len(said.strip().splitlines()) == 1
    assert {path.name for path in disk.folder.iterdir()} - {"turnwire.db-wal", "turnwire.db-shm"} == before
    disk.heal()
    assert (await backed_up(disk, target))[0] == 0
    assert problems(target) == []


def new_record() -> tuple[str, TokenRecord]:
    """Returns a token and its record."""
    token, holder = new_token(), Principal(tenant="acme", subject="eve", role=Role.WRITER)
    times = {"created_at": datetime.now(UTC), "expires_at": None, "last_used_at": None, "revoked_at": None}
    return token, TokenRecord(token_id="tok_1", token_hash=token_hash(token), principal=holder, **times)


async def test_tokens_stay_valid_while_their_file_cannot_be_read(disk: Disk) -> None:
    """One line of the log tells it; when it can be read again, what was revoked meanwhile is refused."""
    path = disk.folder / "turnwire-tokens.db"
    token, record = new_record()
    async with contextlib.aclosing(await TokenFile.open(path)) as file:
        await file.add(record)
    listing = ListSessionsRequest()
    async with disk.server("[auth]\nmethods = ['token']\n") as server, connect(server.address) as client:
        await client.sessions.ListSessions(listing, metadata=bearer(token))
        rule = disk.fail(Call.READ, ERRORS["EIO"], suffix=path.name)
        async with contextlib.aclosing(await TokenFile.open(path)) as file:
            assert await file.revoke(record.token_id, datetime.now(UTC))
        while disk.hits(rule) < 3 or not lines(server, "tokens_not_read"):
            await client.sessions.ListSessions(listing, metadata=bearer(token))
        disk.heal()
        while True:
            try:
                await client.sessions.ListSessions(listing, metadata=bearer(token))
            except grpc.aio.AioRpcError as error:
                assert error.code() == grpc.StatusCode.UNAUTHENTICATED
                break
        assert await server.terminate() == 0
        assert len(lines(server, "tokens_not_read")) == 1


@pytest.mark.parametrize(
    ("call", "error", "is_served"),
    [
        (Call.WRITE, "ENOSPC", True),
        (Call.WRITE, "EROFS", False),
        (Call.WRITE, "EDQUOT", False),
        (Call.READ, "EIO", False),
        (Call.SYNC, "EIO", False),
        (Call.OPEN, "EACCES", False),
    ],
)
async def test_a_start_on_a_failing_disk(disk: Disk, call: Call, error: str, is_served: bool) -> None:
    """On a full disk what is stored can be read; else one line says why there is no start. Nothing is lost by it."""
    ledger = Ledger()
    async with server_process(disk.folder) as server, connect(server.address) as client:
        session_id = await ledger.begin(client)
        await ledger.say(client, session_id, "before")
        await server.kill()
    for suffix in ("turnwire.db", "-wal"):
        disk.fail(call, ERRORS[error], suffix=suffix)
    try:
        async with disk.server() as server, connect(server.address) as client:
            assert is_served
            assert len(await messages_of(client, session_id)) == 2
            assert (await refused(client.messages.AppendMessage(note(session_id)))).reason == "STORAGE_FULL"
    except RuntimeError as failed:
        assert not is_served, failed
        [line] = str(failed).splitlines()
        assert line.startswith("turnwire: cannot start: ")
    await check_after(disk, ledger)


@pytest.mark.parametrize(
    ("script", "heals"),
    [("/sleep 3600", True), ("/words 100\n/sleep 3600", True), ("/words 100\n/sleep 3600", False)],
    ids=["not answered", "in mid-answer", "stopped while it is full"],
)
async def test_a_start_on_a_full_disk_with_a_turn_that_was_left(disk: Disk, script: str, heals: bool) -> None:
    """Stored messages can be read, waiting ones stay; when there is room again, the turn ends or goes on."""
    ledger = Ledger()
    is_answered = script.startswith("/words")
    async with server_process(disk.folder) as server, connect(server.address) as client:
        session_id = await ledger.begin(client)
        left = await client.messages.SendMessage(ask(script, session_id))
        waiting = await client.messages.SendMessage(ask("after", session_id))
        while is_answered and not (await messages_of(client, session_id))[1].parts:
            await asyncio.sleep(0.01)
        await server.kill()
    for suffix in ("turnwire.db", "-wal"):
        disk.fail(Call.WRITE, ERRORS["ENOSPC"], suffix=suffix)
    async with disk.server(JSON_LINES) as server, connect(server.address) as client:
        assert (await messages_of(client, session_id))[0].message_id == left.message_id
        assert (await refused(client.messages.AppendMessage(note(session_id)))).reason == "STORAGE_FULL"
        while is_answered and not lines(server, "turn_not_saved_yet"):
            await asyncio.sleep(0.05)
        if heals:
            disk.heal()
            if not is_answered:  # its model is asked again
                abort = AbortSessionRequest(session_id=session_id, expected_turn_id=left.turn_id, keep_queue=True)
                await client.messages.AbortSession(abort)
            await turn_ended(client, left)
            await turn_ended(client, waiting)
        assert await server.terminate() == 0
    disk.heal()
    async with server_process(disk.folder) as server, connect(server.address) as client:
        await turn_ended(client, left)
        await turn_ended(client, waiting)
        await server.kill()
    await check_after(disk, ledger)
