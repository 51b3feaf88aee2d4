"""Several nodes on one PostgreSQL: processes that are killed, stopped and told to end."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import grpc
import msgspec
import psycopg
import pytest
from click.testing import CliRunner

from opencode.event.event_pb2 import DELTA_MODE_NONE, GlobalEvent
from opencode.message.content_pb2 import MESSAGE_TYPE_ASSISTANT
from opencode.message.message_pb2 import SendMessageResponse
from opencode.session.session_pb2 import (
    SESSION_STATUS_IDLE,
    SESSION_STATUS_RUNNING,
    CreateSessionRequest,
    GetSessionRequest,
    GetSessionResponse,
    SessionSettings,
    UpdateDirectoryRequest,
    UpdateSessionRequest,
)
from opencode.transfer.transfer_pb2 import ImportOutcome, ImportSessionsRequest, ImportSessionsResponse
from opencode.usage.usage_pb2 import Quota
from tests.support.clients.archives import bring, export, upload
from tests.support.clients.conversation import (
    Watch,
    answer_to,
    ask,
    displayed,
    messages_of,
    new_session,
    refusal_of,
    refused,
    session_of,
    talk,
    watching,
    words_of,
)
from tests.support.clients.signed_in import bearer
from tests.support.oracles.archives import golden_records
from tests.support.servers.authority import Authority
from tests.support.servers.moving import lines
from tests.support.servers.process import ServerProcess
from tests.support.servers.running import Client, connect, running_server
from turnwire.cli.commands import app
from turnwire.cluster.peers import PRINCIPAL
from turnwire.domain.principal import BUILT_IN
from turnwire.domain.shards import shard_of
from turnwire.storage.postgres.nodes import SHARD

pytestmark = pytest.mark.slow

T = TypeVar("T")

SLOW = "/words 2\n/sleep 2"
"""Two words, and the end two seconds later: another node ends it, or begins it again when no word was saved."""

SLEEP = "/sleep 3600"

TAKEOVER_SECONDS = 10.0
"""Three are promised on a machine that has nothing else to do."""


class Nodes:
    """Processes of `turnwire serve` on one database, with a client for each."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._url = folder, url
        self._open = contextlib.AsyncExitStack()
        self.processes: dict[str, ServerProcess] = {}

    async def start(self, name: str, files: str = "") -> Client:
        """Starts a node and returns a client of it. `files` are lines for its section."""
        toml = f'[storage]\nurl = "{self._url}"\n[cluster]\nlisten = "127.0.0.1:0"\n{files}'
        process = self.processes[name] = await ServerProcess.start(self._folder, toml, name=name)
        self._open.push_async_callback(process.kill)
        return await self._open.enter_async_context(connect(process.address))

    async def shared(self, *clients: Client) -> None:
        """Returns when each node makes sessions, so that each has shards."""
        for client in clients:
            await new_session(client)

    async def balanced(self) -> None:
        """Returns when all of two nodes have their shares: no session moves any more."""
        query = f"SELECT count(*) FROM pg_locks WHERE classid::bigint = {SHARD} AND objsubid = 2 GROUP BY pid"
        with psycopg.connect(self._url, autocommit=True) as db:
            while db.execute(query).fetchall() != [(128,), (128,)]:
                await asyncio.sleep(0.05)

    def address_of(self, session_id: str) -> str:
        """Returns where other nodes reach the owner of a session."""
        query = f"SELECT address FROM nodes JOIN pg_locks USING (pid) WHERE classid::bigint = {SHARD} AND objid = %s"
        with psycopg.connect(self._url, autocommit=True) as db:
            [[address]] = db.execute(query, [shard_of(session_id)]).fetchall()
        return str(address)

    async def aclose(self) -> None:
        """Kills all. Shows what they wrote, should the test have failed."""
        await self._open.aclose()
        for name, process in self.processes.items():
            print(*(f"{name}: {line}" for line in process.stderr), sep="\n")


@pytest.fixture
async def nodes(tmp_path: Path, postgres_url: str) -> AsyncIterator[Nodes]:
    """No node yet."""
    made = Nodes(tmp_path, postgres_url)
    yield made
    await made.aclose()


async def again(call: Callable[[], Awaitable[T]]) -> T:
    """Makes a call until it succeeds, as a client does that is told to try again."""
    ends_at = time.monotonic() + TAKEOVER_SECONDS
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE, error
            assert time.monotonic() < ends_at, error
            await asyncio.sleep(0.02)


async def ended(client: Client, accepted: SendMessageResponse) -> None:
    """Returns when a turn has ended, whoever ends it."""

    async def look() -> None:
        async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
            await watch.until_turn_ended(accepted.turn_id)

    await again(look)


def sequences(watch: Watch) -> list[int]:
    """Returns the sequences of the stored events of a watch."""
    return [event.sequence for event in watch.events if event.sequence]


async def test_any_node_answers_any_call(nodes: Nodes) -> None:
    """A session that was made at one is written, read, watched and listed through the other, and the other way."""
    a = await nodes.start("a")
    b = await nodes.start("b")
    await nodes.shared(a, b)
    for maker, other in ((a, b), (b, a)):
        session_id = await new_session(maker)
        async with watching(other, session_id, after_sequence=0) as watch:
            accepted = await maker.messages.SendMessage(ask("/words 3", session_id))
            await watch.until_turn_ended(accepted.turn_id)
            await watch.until_text()
        await talk(other, "/words 2", session_id)
        assert [m.SerializeToString() for m in await messages_of(other, session_id)] == [
            m.SerializeToString() for m in await messages_of(maker, session_id)
        ]
        assert len(await displayed(other, session_id)) == 4
        for client in (a, b):
            listed = await client.sessions.ListSessions()
            assert session_id in {one.id for one in listed.sessions}


async def test_a_list_shows_what_runs_at_other_nodes(nodes: Nodes) -> None:
    """As their owners do: the turn, and what waits behind it. When they end it is idle everywhere."""
    a = await nodes.start("a")
    b = await nodes.start("b")
    await nodes.shared(a, b)
    await nodes.balanced()
    mine, other = await new_session(a), await new_session(b)
    for client, session_id in ((a, mine), (b, other)):
        await client.messages.SendMessage(ask("/sleep 600", session_id))
        await client.messages.SendMessage(ask("later", session_id))
    for client in (a, b):
        listed = (await client.sessions.ListSessions()).sessions
        running = {one.id: (one.status, one.queued_messages) for one in listed if one.active_turn_id}
        assert running == dict.fromkeys((mine, other), (SESSION_STATUS_RUNNING, 1))
    for client in (a, b):
        for session_id in (mine, other):
            await client.messages.AbortSession(session_id=session_id)
        listed = (await client.sessions.ListSessions()).sessions
        assert {one.status for one in listed} == {SESSION_STATUS_IDLE}


async def test_a_name_is_carried_out_once_wherever_it_arrives(nodes: Nodes) -> None:
    """At both nodes at the same time, too."""
    a = await nodes.start("a")
    b = await nodes.start("b")
    await nodes.shared(a, b)
    for number in range(5):
        request = CreateSessionRequest(request_id=f"once-{number}")
        made = await asyncio.gather(*(again(partial(c.sessions.CreateSession, request)) for c in (a, b)))
        assert len({answer.id for answer in made}) == 1
        sent = ask("/words 1", made[0].id, request_id=f"message-{number}")
        answers = await asyncio.gather(*(again(partial(c.messages.SendMessage, sent)) for c in (a, b)))
        assert len({answer.message_id for answer in answers}) == 1


async def test_a_name_of_two_requests_is_carried_out_once(nodes: Nodes) -> None:
    """In two sessions that two nodes have, and for a new one, at the same time: the others are told that it is used."""
    a = await nodes.start("a")
    b = await nodes.start("b")
    await nodes.balanced()
    of_a, of_b = await new_session(a), await new_session(b)
    for number in range(15):
        name = f"name-{number}"
        calls = (
            a.messages.SendMessage(ask("/words 1", of_a, request_id=name)),
            b.messages.SendMessage(ask("/words 1", of_b, request_id=name)),
            a.sessions.CreateSession(request_id=name),
        )
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refusals = [refusal_of(one) for one in answers if isinstance(one, grpc.aio.AioRpcError)]
        assert [(one.reason, one.fields) for one in refusals] == [("REQUEST_ID_REUSED", ["request_id"])] * 2


async def test_the_sessions_of_a_killed_node_go_on_with_the_other(nodes: Nodes) -> None:
    """Its turn ends as after a restart, nothing that was answered is lost, and a watch has everything once."""
    a = await nodes.start("a")
    b = await nodes.start("b")
    await nodes.balanced()
    session_id = await new_session(a)
    first = await talk(a, "/words 3", session_id)
    before = await messages_of(b, session_id)
    async with watching(b, session_id, after_sequence=0) as watch:
        running = await b.messages.SendMessage(ask(SLOW, session_id))
        await watch.until_text()
        queued = await b.messages.SendMessage(ask("/words 1", session_id))
        await nodes.processes["a"].kill()
        killed_at = time.monotonic()
        with pytest.raises(grpc.aio.AioRpcError) as error:
            while await watch.batch():
                pass
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    await again(lambda: session_of(b, session_id))
    took = time.monotonic() - killed_at
    await ended(b, running)
    await ended(b, queued)
    after = await messages_of(b, session_id)
    assert [m.SerializeToString() for m in after[: len(before)]] == [m.SerializeToString() for m in before]
    assert words_of(await answer_to(b, queued))
    rest = Watch(b.events.WatchEvents(session_id=session_id, resume_token=watch.token))
    await rest.until_kind("caught_up")
    rest.call.cancel()
    seen = [*sequences(watch), *sequences(rest)]
    assert seen == list(range(1, seen[-1] + 1)), "each event once, in order, without gaps"
    assert first.sequence in seen
    assert took < TAKEOVER_SECONDS
    await talk(b, "/words 1")  # and new ones begin


async def test_a_stopped_node_writes_nothing_late(nodes: Nodes) -> None:
    """It is stopped in the middle of an answer, and goes on two seconds later: others have its sessions by then."""
    a = await nodes.start("a")
    b = await nodes.start("b")
    await nodes.balanced()
    session_id = await new_session(a)
    running = await b.messages.SendMessage(ask("/words 100000", session_id))
    nodes.processes["a"].send_signal(signal.SIGSTOP)
    await again(lambda: session_of(b, session_id))
    await ended(b, running)
    await talk(b, "/words 2", session_id)
    before = [m.SerializeToString() for m in await messages_of(b, session_id)]
    nodes.processes["a"].send_signal(signal.SIGCONT)
    through_a = await again(lambda: messages_of(a, session_id))
    assert [m.SerializeToString() for m in through_a] == before
    await again(lambda: talk(a, "/words 1", session_id))
    assert [m.SerializeToString() for m in await messages_of(b, session_id)][: len(before)] == before
    await again(lambda: new_session(a))
    assert nodes.processes["a"].stderr


async def test_a_node_that_ends_gives_its_sessions_away(nodes: Nodes) -> None:
    """Calls through the other one go on without waiting for its end."""
    a = await nodes.start("a")
    b = await nodes.start("b")
    await nodes.balanced()
    session_id = await new_session(a)
    await talk(a, "/words 2", session_id)
    running = await b.messages.SendMessage(ask(SLOW, session_id))
    ending = asyncio.create_task(nodes.processes["a"].terminate())
    await ended(b, running)
    await talk(b, "/words 1", session_id)
    assert await ending == 0
    await talk(b, "/words 1", session_id)


async def test_a_third_node_gets_its_share_and_all_survive_its_end(nodes: Nodes) -> None:
    """Sessions move while they are used, and nothing is lost."""
    a = await nodes.start("a")
    b = await nodes.start("b")
    await nodes.shared(a, b)
    session_ids = [await new_session(client) for client in (a, b) for _ in range(10)]
    for session_id in session_ids:
        await talk(a, "/words 1", session_id)
    c = await nodes.start("c")
    await again(lambda: new_session(c))
    for session_id in session_ids:
        await again(partial(talk, c, "/words 1", session_id))
    await nodes.processes["b"].kill()
    for client in (a, c):
        for session_id in session_ids:
            await again(partial(talk, client, "/words 1", session_id))
    for session_id in session_ids:
        assert len(await messages_of(a, session_id)) >= 8


async def test_nodes_know_each_other_by_certificates(nodes: Nodes, tmp_path: Path) -> None:
    """Calls and watches cross between nodes of one authority. Whoever else calls their listener is refused."""
    authority, stranger = Authority("nodes"), Authority("somebody else")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    (tmp_path / "stranger.pem").write_bytes(stranger.pem)

    def files(issuer: Authority, name: str, ca: str = "ca.pem") -> str:
        cert, key = issuer.issue(name).write(tmp_path, name)
        return f'cert = "{cert}"\nkey = "{key}"\nca = "{ca}"\n'

    a = await nodes.start("a", files(authority, "node-a"))
    b = await nodes.start("b", files(authority, "node-b"))
    await nodes.balanced()
    session_id = await new_session(a)
    async with watching(b, session_id, after_sequence=0) as watch:
        accepted = await b.messages.SendMessage(ask("/words 3", session_id))
        await watch.until_turn_ended(accepted.turn_id)
    assert words_of(await answer_to(a, accepted))

    address = nodes.address_of(session_id)
    call = {"session_id": session_id, "address": address}
    node, other = authority.issue("node-c"), stranger.issue("node-c")
    known = grpc.ssl_channel_credentials(authority.pem, node.key, node.cert)
    assert (await call_as_node(known, **call)).session.id == session_id
    for credentials in (
        None,
        grpc.ssl_channel_credentials(authority.pem),
        grpc.ssl_channel_credentials(authority.pem, other.key, other.cert),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call_as_node(credentials, **call)
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    renewed, _ = authority.issue("node-a").write(tmp_path, "node-a")
    served = await asyncio.to_thread(certificate_at, address, *node.write(tmp_path, "node-c"))
    assert served == ssl.PEM_cert_to_DER_cert(renewed.read_text()), "a renewed certificate needs no restart"
    several = [await new_session(client) for client in (a, b) for _ in range(8)]
    of_these = {nodes.address_of(one) for one in several}
    impostor = await nodes.start("impostor", files(stranger, "impostor", "stranger.pem"))
    for one in several:
        taken = UpdateSessionRequest(session_id=one, settings=SessionSettings(title="taken"))
        try:
            await impostor.sessions.UpdateSession(taken)
        except grpc.aio.AioRpcError as error:
            refusal = refusal_of(error)
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "SESSION_MOVING")
            break
        assert nodes.address_of(one) not in of_these, "it is the impostor's own by now"
    else:
        pytest.fail("the impostor has all sessions")
    assert (await again(lambda: session_of(a, one))).settings.title != "taken"


def certificate_at(address: str, cert: Path, key: Path) -> bytes:
    """Returns the certificate of a listener that demands one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=10) as connection,
        context.wrap_socket(connection) as encrypted,
    ):
        return encrypted.getpeercert(binary_form=True) or b""


async def call_as_node(
    credentials: grpc.ChannelCredentials | None, *, address: str, session_id: str
) -> GetSessionResponse:
    """Returns what a node's listener for the others answers."""
    async with (
        grpc.aio.insecure_channel(address)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials) as channel
    ):
        call = channel.unary_unary(
            "/opencode.session.SessionService/GetSession",
            request_serializer=GetSessionRequest.SerializeToString,
            response_deserializer=GetSessionResponse.FromString,
        )
        metadata = ((PRINCIPAL, msgspec.json.encode(BUILT_IN)),)
        return await call(GetSessionRequest(session_id=session_id), metadata=metadata, timeout=10)


async def test_certificates_that_do_not_work_stop_the_start(nodes: Nodes, tmp_path: Path) -> None:
    """The error names the key."""
    cert, key = Authority("nodes").issue("node").write(tmp_path, "node")
    (tmp_path / "ca.pem").write_bytes(b"?")
    with pytest.raises(RuntimeError, match=r"cannot start: cluster\.ca: .*ca\.pem has no certificate in PEM"):
        await nodes.start("a", f'cert = "{cert}"\nkey = "{key}"\nca = "ca.pem"\n')


async def test_an_address_that_is_taken_stops_the_start(tmp_path: Path, postgres_url: str) -> None:
    """The error names the key."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        toml = f'[storage]\nurl = "{postgres_url}"\n[cluster]\nlisten = "{address}"\n'
        with pytest.raises(RuntimeError, match=f"cannot start: cluster.listen: cannot listen on {address}"):
            await ServerProcess.start(tmp_path, toml)


class Everything:
    """Watches all sessions, goes on with its token at whichever node it is told, and keeps what it has seen."""

    def __init__(self) -> None:
        self.watches: list[Watch] = []

    @contextlib.asynccontextmanager
    async def at(self, client: Client) -> AsyncIterator[Watch]:
        """Watches at a node, from the place where the watch before ended; at first, from the beginning."""
        start: dict[str, Any] = {"resume_token": self.watches[-1].token} if self.watches else {"from_beginning": True}
        async with watching(client, **start) as watch:
            self.watches.append(watch)
            yield watch

    async def until_has(self, accepted: SendMessageResponse) -> None:
        """Reads until the turn of a message has ended."""
        await self.watches[-1].until_turn_ended(accepted.turn_id)

    async def check(self, client: Client, *session_ids: str) -> None:
        """Checks that it has each stored event of sessions once, in the order of its session, as far as it has seen."""
        for session_id in session_ids:
            seen = [e.sequence for w in self.watches for e in w.events if e.session_id == session_id and e.sequence]
            head = (await session_of(client, session_id)).head_sequence
            assert seen == list(range(1, head + 1)), session_id

    def text(self, message_id: str) -> str:
        """Returns what the deltas and snapshots tell of an answer."""
        told = ""
        for event in (event for watch in self.watches for event in watch.events):
            if event.HasField("part_delta") and event.part_delta.message_id == message_id:
                told += event.part_delta.text
        return told


async def test_a_watch_of_all_sessions_has_those_of_all_nodes(nodes: Nodes) -> None:
    """Stored events once and in order, what streams at the other node too; it goes on with its token at any node."""
    a = await nodes.start("a")
    b = await nodes.start("b")
    await nodes.balanced()
    seen = Everything()
    of_a, of_b = await new_session(a), await new_session(b)
    async with seen.at(a) as watch:
        await watch.until_kind("caught_up")
        for session_id in (of_a, of_b):
            accepted = await b.messages.SendMessage(ask("/words 20\n/sleep 0.2", session_id))
            await watch.until(lambda event, id_=session_id: event.session_id == id_ and event.HasField("part_delta"))
            await seen.until_has(accepted)
            answer = await answer_to(a, accepted)
            assert seen.text(answer.message_id) == words_of(answer)
        running = await a.messages.SendMessage(ask("/words 20\n/sleep 0.5", of_b))
        await watch.until(lambda event: event.turn_id == running.turn_id)
    unseen = await talk(a, "/words 2", of_a)
    async with seen.at(b) as watch:
        await watch.until_kind("caught_up")
        await seen.until_has(running)
        await seen.until_has(unseen)
    for client in (a, b):
        await seen.check(client, of_a, of_b)


async def test_a_watch_of_all_sessions_shows_what_is_open_at_each_node(nodes: Nodes) -> None:
    """An answer that streams at another node is in a snapshot before the marker; without deltas, only that."""
    a = await nodes.start("a")
    b = await nodes.start("b")
    await nodes.balanced()
    sessions = [await new_session(client) for client in (a, b)]
    for session_id in sessions:
        async with watching(a, session_id) as one:
            await a.messages.SendMessage(ask("/words 3\n/sleep 5", session_id))
            await one.until_text()
    for client in (a, b):
        async with watching(client, delta_mode=DELTA_MODE_NONE) as watch:
            await watch.until_kind("caught_up")
            shown = [e for e in watch.events if e.HasField("message_snapshot")]
            assert {e.session_id for e in shown} == set(sessions)
            assert all(words_of(e.message_snapshot.message) for e in shown)
            assert not any(e.HasField("part_delta") for e in watch.events)


async def test_a_watch_of_all_sessions_survives_nodes_that_come_and_die(nodes: Nodes) -> None:
    """It goes on at its node, with each stored event once."""
    a = await nodes.start("a")
    seen = Everything()
    async with seen.at(a) as watch:
        session_ids = [await new_session(a) for _ in range(8)]
        await seen.until_has(await a.messages.SendMessage(ask("/words 1", session_ids[0])))
        b = await nodes.start("b")
        for session_id in session_ids:
            accepted = await again(partial(a.messages.SendMessage, ask("/words 2", session_id, request_id=session_id)))
            await seen.until_has(accepted)
        await nodes.balanced()
        session_ids.append(await new_session(b))
        running = await b.messages.SendMessage(ask(SLOW, session_ids[-1]))
        await watch.until(lambda event: event.turn_id == running.turn_id)
        others = [await b.messages.SendMessage(ask("/words 3", session_id)) for session_id in session_ids[:-1]]
        await nodes.processes["b"].kill()
        for accepted in (running, *others):
            await seen.until_has(accepted)
        await seen.until_has(await again(partial(a.messages.SendMessage, ask("/words 1", session_ids[-1]))))
    await seen.check(a, *session_ids)


class Simple:
    """One call of SubscribeGlobalEvents, and what it has told."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.events: list[GlobalEvent] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def at(cls, client: Client, *session_ids: str) -> AsyncIterator["Simple"]:
        """Subscribes at a node."""
        call = client.events.SubscribeGlobalEvents(session_ids=session_ids)
        try:
            await call.initial_metadata()
            yield cls(call)
        finally:
            call.cancel()

    async def until(self, found: Callable[[GlobalEvent], bool]) -> GlobalEvent:
        """Reads until an event is the wanted one."""
        while True:
            event = await self.call.read()
            assert event is not grpc.aio.EOF
            self.events.append(event)
            if found(event):
                return event

    async def until_words(self, session_id: str) -> None:
        """Reads until there are words of an answer in a session, unless there were some."""
        answers = set[str]()

        def found(event: GlobalEvent) -> bool:
            if event.message_updated.role == "assistant":
                answers.add(event.message_updated.message_id)
            part = event.message_part_updated
            return part.session_id == session_id and part.message_id in answers and bool(part.text.text)

        if not any(found(event) for event in self.events):
            await self.until(found)

    async def until_finished(self, *session_ids: str) -> None:
        """Reads until an answer has ended in each of some sessions, in any order."""
        left = set(session_ids)
        while left:
            event = await self.until(lambda e: e.message_updated.role == "assistant" and bool(e.message_updated.finish))
            left.discard(event.message_updated.session_id)

    async def check(self, client: Client, session_id: str) -> None:
        """Checks that it has told of each message of a session: when it came, when it ended, and all of its text.

        Of a message that an interrupted turn has taken back it may have told, too.
        """
        told = [e.message_updated for e in self.events if e.message_updated.session_id == session_id]
        for message in await messages_of(client, session_id):
            finishes = [one.finish for one in told if one.message_id == message.message_id]
            assert len(finishes) == (2 if message.type == MESSAGE_TYPE_ASSISTANT else 1)
            assert bool(finishes[-1]) == (message.type == MESSAGE_TYPE_ASSISTANT)
            texts = [
                e.message_part_updated.text.text
                for e in self.events
                if e.message_part_updated.message_id == message.message_id
            ]
            assert texts[-1] == words_of(message)


async def test_the_simple_stream_has_the_sessions_of_all_nodes(nodes: Nodes, tmp_path: Path) -> None:
    """Answers of the other node grow in it too; each message comes once, in order, with its owner's directory."""
    a = await nodes.start("a")
    b = await nodes.start("b")
    await nodes.balanced()
    of_a, of_b, unwatched = await new_session(a), await new_session(b), await new_session(b)
    async with Simple.at(a) as all_of_them, Simple.at(a, of_b, of_a) as some:
        for session_id in (of_b, of_a):
            there = UpdateDirectoryRequest(session_id=session_id, directory=str(tmp_path))
            await a.sessions.UpdateSessionDirectory(there)
            await b.messages.SendMessage(ask("/rate 60\n/words 60", session_id))
            await talk(b, "/words 1", unwatched)
            for stream in (all_of_them, some):
                await stream.until_words(session_id)
                await stream.until_finished(session_id)
                texts = [
                    e.message_part_updated.text.text
                    for e in stream.events
                    if e.message_part_updated.session_id == session_id and e.directory == str(tmp_path)
                ]
                assert len(texts) > 2
        for session_id in (of_a, of_b):
            await some.check(b, session_id)
            await all_of_them.check(b, session_id)
        assert any(e.message_updated.session_id == unwatched for e in all_of_them.events)
        assert not any(e.message_updated.session_id == unwatched for e in some.events)
        async with Simple.at(b) as late:  # begins with what is open at the other node
            running = await b.messages.SendMessage(ask("/words 2\n/sleep 5", of_a))
            await late.until_words(of_a)
            async with Simple.at(b) as later:
                part = await later.until(lambda e: e.message_part_updated.session_id == of_a)
                assert part.message_part_updated.text.text
            await b.messages.AbortSession(session_id=running.session_id)
            await late.until_finished(of_a)


async def test_the_simple_stream_survives_nodes_that_come_and_die(nodes: Nodes) -> None:
    """It goes on at its node: what the dead one had stored and what becomes of its turns come, each once."""
    a = await nodes.start("a")
    async with Simple.at(a) as stream:
        first = await new_session(a)
        await a.messages.SendMessage(ask("/words 1", first))
        await stream.until_finished(first)
        b = await nodes.start("b")
        await nodes.balanced()
        session_ids = [await new_session(client) for client in (a, b, b)]
        for session_id in session_ids:
            await a.messages.SendMessage(ask(SLOW, session_id))
        for session_id in session_ids:
            await stream.until_words(session_id)
        queued = [await a.messages.SendMessage(ask("/words 2", session_id)) for session_id in session_ids]
        await nodes.processes["b"].kill()
        for accepted in queued:
            await ended(a, accepted)
        mark = await new_session(a)
        await a.messages.SendMessage(ask("/words 1", mark))
        await stream.until_finished(mark)
        for session_id in (first, *session_ids):
            await stream.check(a, session_id)


async def test_a_token_is_known_and_revoked_at_all_nodes(nodes: Nodes, tmp_path: Path, postgres_url: str) -> None:
    """Wherever the command runs, also before the first node: the tokens are in the database."""
    config = tmp_path / "operator.toml"
    config.write_text(f'[auth]\nmethods = ["token"]\n[storage]\nurl = "{postgres_url}"\n')

    def command(*arguments: str) -> Any:
        done = CliRunner().invoke(app, ["token", *arguments, "--config", str(config), "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    async def until(token: str, is_known: bool) -> None:
        for client in clients:
            while await is_admitted(client, token) is not is_known:
                await asyncio.sleep(0.02)

    early = await asyncio.to_thread(command, "create", "--subject", "ada")
    clients = [await nodes.start(name, '[auth]\nmethods = ["token"]\n') for name in ("a", "b")]
    assert [await is_admitted(client, early["token"]) for client in clients] == [True, True]
    late = await asyncio.to_thread(command, "create", "--subject", "eve")
    began = time.monotonic()
    await until(late["token"], is_known=True)
    await asyncio.to_thread(command, "revoke", early["id"])
    await until(early["token"], is_known=False)
    print(f"known and revoked in {time.monotonic() - began:.2f} s")
    assert {token["id"] for token in await asyncio.to_thread(command, "list")} == {early["id"], late["id"]}


async def is_admitted(client: Client, token: str) -> bool:
    """Returns whether a node takes a token."""
    try:
        await client.sessions.ListSessions(metadata=bearer(token))
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED, error
        return False
    return True


def of_many(count: int) -> bytes:
    """Returns an archive of many sessions, of which each node will have some."""
    return lines([one for number in range(count) for one in golden_records(str(number))])


def outcomes(answers: list[ImportSessionsResponse]) -> Counter[str]:
    """Returns how many sessions of an import have which outcome, and how many are incomplete."""
    named = [ImportOutcome.Name(one.outcome) for answer in answers for one in answer.sessions]
    found = Counter(name.removeprefix("IMPORT_OUTCOME_") for name in named)
    assert answers[-1].session_count == sum(found.values())
    assert answers[-1].done_bytes == answers[-1].total_bytes
    return found + Counter(incomplete=answers[-1].incomplete_session_count)


async def test_an_import_brings_sessions_to_all_nodes(nodes: Nodes, tmp_path: Path) -> None:
    """The same as to one server, whichever node is called; then what came since, and nothing where they differ."""
    async with running_server(tmp_path) as server, connect(server.address) as source:
        session_ids = [await new_session(source) for _ in range(8)]
        for session_id in session_ids:
            await talk(source, "/words 2", session_id)
        first = await export(source)
        for session_id in session_ids[:4]:
            await talk(source, "/words 3", session_id)
        second = await export(source)
    a = await nodes.start("a")
    b = await nodes.start("b")
    await nodes.balanced()
    assert outcomes(await bring(a, first, verify=True)) == {"CREATED": 8, "incomplete": 8}
    assert not (await a.sessions.ListSessions()).sessions
    async with Everything().at(b) as watch:
        await watch.until_kind("caught_up")
        assert outcomes(await bring(a, first)) == {"CREATED": 8}
        await watch.until_kind("conversation_changed", 8)
        assert {e.session_id for e in watch.events if e.HasField("conversation_changed")} == set(session_ids)
    assert len({nodes.address_of(session_id) for session_id in session_ids}) == 2
    for client in (a, b):
        assert await export(client) == first
        assert outcomes(await bring(client, first, verify=True)) == {"UNCHANGED": 8}
    assert outcomes(await bring(b, second, dry_run=True)) == {"ADDED": 4, "UNCHANGED": 4, "incomplete": 4}
    assert outcomes(await bring(b, second)) == {"ADDED": 4, "UNCHANGED": 4}
    assert await export(a) == second
    for session_id in (session_ids[0], session_ids[-1]):
        await talk(a, "/words 1", session_id)
    assert outcomes(await bring(a, second)) == {"UNCHANGED": 6, "DIFFERS": 2}
    for session_id in session_ids:
        await talk(b, "/words 1", session_id)


async def test_one_import_of_a_tenant_runs_at_a_time_on_all_nodes(nodes: Nodes) -> None:
    """One at another node is refused; the same name joins it there, also when its caller has gone."""
    a = await nodes.start("a")
    b = await nodes.start("b")
    await nodes.balanced()
    archive = of_many(60)
    request, other = [ImportSessionsRequest(upload_id=await upload(a, archive), request_id=one) for one in "ab"]
    running = a.transfer.ImportSessions(request)
    await running.read()
    for client in (a, b):
        refusal = await refused(client.transfer.ImportSessions(other).read())
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "IMPORT_RUNNING")
    running.cancel()
    assert outcomes([one async for one in b.transfer.ImportSessions(request)]) == {"CREATED": 60}


async def test_an_import_goes_on_while_a_node_comes(nodes: Nodes, tmp_path: Path) -> None:
    """Sessions of it move: those that are left go to the owners that they have by then."""
    archive = of_many(120)
    a = await nodes.start("a")
    running = a.transfer.ImportSessions(upload_id=await upload(a, archive))
    answers = [await running.read()]
    b = await nodes.start("b")
    while (answer := await running.read()) is not grpc.aio.EOF:
        answers.append(answer)
    assert outcomes(answers) == {"CREATED": 120}
    await nodes.balanced()
    assert outcomes(await bring(b, archive)) == {"UNCHANGED": 120}
    assert await export(b) == await export(a)


@pytest.mark.parametrize("has_import", [True, False], ids=["that has the import", "that brings its share"])
async def test_an_import_survives_the_death_of_a_node(nodes: Nodes, tmp_path: Path, has_import: bool) -> None:
    """The others bring what it has left, or the same request again does. It ends complete, as on one server."""
    archive = of_many(60)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await bring(client, archive)
        expected = await export(client)
    clients = {name: await nodes.start(name) for name in ("a", "b")}
    await nodes.balanced()
    owner = nodes.address_of("default")
    [of_owner] = [name for name, one in clients.items() if nodes.address_of(await new_session(one)) == owner]
    for one in (await clients["a"].sessions.ListSessions()).sessions:
        await clients["a"].sessions.DeleteSession(session_id=one.id)
    victim = of_owner if has_import else ({"a", "b"} - {of_owner}).pop()
    survivor = clients[({"a", "b"} - {victim}).pop()]
    request = ImportSessionsRequest(upload_id=await upload(survivor, archive), request_id="import")
    answers = list[ImportSessionsResponse]()

    async def run() -> None:
        answers.clear()
        async for answer in survivor.transfer.ImportSessions(request):
            answers.append(answer)
            if answer.session_count >= 5:
                await nodes.processes[victim].kill()

    if has_import:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await run()
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        assert answers[-1].session_count < 60
        await again(run)
    else:
        await run()
    found = outcomes(answers)
    assert set(found) == {"CREATED", "UNCHANGED"} or not has_import
    assert found["CREATED"] + found["UNCHANGED"] == 60
    assert not found["incomplete"]
    assert await export(survivor) == expected
    assert outcomes(await bring(survivor, archive)) == {"UNCHANGED": 60}


@pytest.mark.parametrize(("name", "words"), [("running_turns", [SLEEP]), ("waiting_messages", [SLEEP, "and this"])])
async def test_quotas_of_running_work_hold_over_all_nodes(nodes: Nodes, name: str, words: list[str]) -> None:
    """Work at one node counts at the other within about two seconds, and no longer once it has ended."""
    clients = a, b = [await nodes.start(node, f"[quotas]\nmax_{name} = 1\n") for node in ("a", "b")]
    await nodes.shared(a, b)
    await nodes.balanced()
    busy, refused_in = [await new_session(client) for client in clients]
    for each in words:
        await a.messages.SendMessage(ask(each, busy))

    async def until_used(used: int) -> None:
        while (await quota_of(b, name)).used != used:
            await asyncio.sleep(0.02)

    await until_used(1)
    if len(words) > 1:
        await b.messages.SendMessage(ask(SLEEP, refused_in))
    refusal = await refused(b.messages.SendMessage(ask(words[-1], refused_in)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
    await a.messages.AbortSession(session_id=busy)
    await until_used(0)
    await b.messages.SendMessage(ask(words[-1], refused_in))


async def quota_of(client: Client, name: str) -> Quota:
    """Returns a quota of the client's tenant."""
    listed = (await client.usage.ListQuotas()).quotas
    [found] = [quota for quota in listed if quota.name == name]
    return found


def children_of(pid: int) -> list[int]:
    """Returns the processes that a process has started and that run."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_processes_share_an_address(tmp_path: Path, postgres_url: str) -> None:
    """Callers notice the death of one by a connection that ends; another one takes its place, and all end together."""
    toml = f'[storage]\nurl = "{postgres_url}"\n'
    parent = await ServerProcess.start(tmp_path, toml, options=("--processes", "2"), forked=False)
    try:
        pids = children_of(parent.pid)
        assert len(pids) == 2
        while sum("listening on" in line for line in parent.stderr) < 2:
            await asyncio.sleep(0.02)
        async with connect(parent.address) as client:
            session_id = await again(lambda: new_session(client))
            await again(lambda: talk(client, "/words 2", session_id))
            before = [m.SerializeToString() for m in await again(lambda: messages_of(client, session_id))]
            os.kill(pids[0], signal.SIGKILL)
            for _ in range(10):
                async with connect(parent.address) as other:
                    await again(partial(talk, other, "/words 1", session_id))
            while len(renewed := set(children_of(parent.pid)) - set(pids)) != 1:
                await asyncio.sleep(0.02)
            assert pids[1] in children_of(parent.pid)
            os.kill(pids[1], signal.SIGKILL)  # so that the new one has to answer
            await again(lambda: talk(client, "/words 1", session_id))
            after = await again(lambda: messages_of(client, session_id))
            assert [m.SerializeToString() for m in after][: len(before)] == before
            while len(children_of(parent.pid)) != 2:
                await asyncio.sleep(0.02)
        assert await parent.terminate() == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in (*pids, *renewed))
    finally:
        await parent.kill()
        print(*parent.stderr, sep="\n")


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ("", "--processes needs storage.url: several processes share PostgreSQL, and never an SQLite file"),
        ('[storage]\nurl = "postgresql://u@h/d"\n[cluster]\nlisten = "127.0.0.1:0"\n', "exclude each other"),
    ],
)
async def test_processes_need_postgresql(toml: str, problem: str, tmp_path: Path) -> None:
    """They never share an SQLite file, and have their own addresses for each other."""
    with pytest.raises(RuntimeError, match=problem):
        await ServerProcess.start(tmp_path, toml, options=("--processes", "2"))
