"""Callers with tokens: what a stranger, a reader, a writer and an admin get from a server that asks who calls."""

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from structlog.testing import capture_logs

from opencode.message.message_pb2 import MessagePart, SendMessageRequest, TextPart
from opencode.server.server_pb2 import Caller, GetServerInfoRequest
from opencode.session.session_pb2 import ListSessionsRequest
from tests.support.clients.signed_in import bearer
from tests.support.servers.authority import AUDIENCE, ISSUER, IdentityProvider, assembled, jwks
from tests.support.servers.running import Client, connect, running_server
from turnwire.app import Server
from turnwire.cli.tokens import TokenCommands
from turnwire.core.watches import conflated
from turnwire.identity import own_tokens
from turnwire.identity.access_tokens import new_token
from turnwire.identity.web_tokens import key_set
from turnwire.ports.telemetry.line_limit import LineLimit

PROVIDER = IdentityProvider()
TOML = f"""
[auth]
methods = ["token", "jwt"]
[auth.jwt]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
keys = "jwks.json"
"""


class Door:
    """A server that asks for tokens, a client of it, and the command that creates tokens."""

    def __init__(self, folder: Path, client: Client) -> None:
        """Takes the folder of the server, and the client."""
        self._folder = folder
        self.client = client

    def command(self, name: str, *arguments: str) -> int:
        """Carries out a command for this server; in a thread, for it has an event loop of its own."""
        options = {"--db": str(self._folder / "turnwire.db")}
        commands = TokenCommands(self._folder / "turnwire.toml", {}, options, as_json=True)
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(getattr(commands, name), *arguments).result()

    async def admitted(self, token: str) -> bool:
        """Whether the server takes a token."""
        try:
            await self.client.sessions.ListSessions(metadata=bearer(token))
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED
            return False
        return True


@pytest.fixture(scope="module")
async def door(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Door]:
    """One for the tests of this file, which looks for new tokens all the time."""
    folder = tmp_path_factory.mktemp("door")
    (folder / "jwks.json").write_text(jwks(PROVIDER))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_tokens, "POLL_SECONDS", 0.01)
        patch.setitem(LineLimit.__init__.__kwdefaults__, "lines_a_second", 1_000_000)  # else tests lose their lines
        async with running_server(folder, TOML) as server, connect(server.address) as client:
            yield Door(folder, client)


Create = Callable[..., dict[str, str]]


@pytest.fixture
def create(door: Door, capsys: pytest.CaptureFixture[str]) -> Create:
    """Creates tokens as a person does."""

    def create(subject: str = "eve", tenant: str = "acme", role: str = "writer", expires: str = "1d") -> dict[str, str]:
        assert door.command("create", tenant, subject, role, expires) == 0
        made: dict[str, str] = json.loads(capsys.readouterr().out)
        return made

    return create


async def until_admitted(door: Door, token: str, wanted: bool = True) -> None:
    """Waits until the server takes a token, or no longer does."""
    while await door.admitted(token) is not wanted:
        await asyncio.sleep(0)


async def test_a_stranger_learns_what_the_server_is(door: Door) -> None:
    """And how to sign in: nothing about data, limits or the caller. Health answers everybody."""
    told = await door.client.server.GetServerInfo()
    assert list(told.offered_auth) == ["token", "jwt"]
    assert told.version and told.features and told.node_id
    assert not (told.history_id or told.limits or told.HasField("caller"))
    health = await HealthStub(door.client.channel).Check(health_pb2.HealthCheckRequest())
    assert health.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_token_is_taken_without_a_restart_and_revoked(door: Door, create: Create) -> None:
    """GetServerInfo names its holder; once revoked, it is as wrong as any other."""
    made = create("eve", "acme", "writer")
    await until_admitted(door, made["token"])
    told = await door.client.server.GetServerInfo(metadata=bearer(made["token"]))
    assert told.caller == Caller(tenant="acme", subject="eve", role="writer")
    assert told.history_id and told.limits
    assert door.command("revoke", made["id"]) == 0
    await until_admitted(door, made["token"], wanted=False)


async def test_a_watch_ends_when_its_token_is_revoked(door: Door, create: Create) -> None:
    """With its next event; the events of others go on."""
    watcher, writer = create("watcher"), create("writer")
    for made in (watcher, writer):
        await until_admitted(door, made["token"])
    session = await door.client.sessions.CreateSession(metadata=bearer(writer["token"]))
    watch = door.client.events.WatchEvents(session_id=session.id, metadata=bearer(watcher["token"]))
    assert (await watch.read()).events
    door.command("revoke", watcher["id"])
    await until_admitted(door, watcher["token"], wanted=False)
    send = SendMessageRequest(session_id=session.id, parts=[MessagePart(text=TextPart(text="hello"))])
    await door.client.messages.SendMessage(send, metadata=bearer(writer["token"]))
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        assert not await watch.read(), "an event reached a caller whose token was revoked"
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.slow
async def test_a_silent_stream_ends_when_its_token_is_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simple stream has no heartbeats, and a tenant may be silent for days."""
    monkeypatch.setattr(own_tokens, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(conflated, "PAUSE_SECONDS", 0.0)
    toml = '[server]\nheartbeat_seconds = 0.05\n[auth]\nmethods = ["token"]\n'
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        door, out = Door(tmp_path, client), io.StringIO()
        with contextlib.redirect_stdout(out):
            door.command("create", "acme", "eve", "reader", "1d")
        made = json.loads(out.getvalue())
        await until_admitted(door, made["token"])
        stream = client.events.SubscribeGlobalEvents(metadata=bearer(made["token"]))
        await stream.initial_metadata()
        door.command("revoke", made["id"])
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            assert not await stream.read(), "nothing has happened"
        assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_reflection_ends_when_its_token_is_revoked(door: Door, create: Create) -> None:
    """One stream answers many questions; each needs a valid token."""
    reader = create("reader", role="reader")
    await until_admitted(door, reader["token"])
    call = ServerReflectionStub(door.client.channel).ServerReflectionInfo(metadata=bearer(reader["token"]))
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    await call.write(question)
    assert (await call.read()).list_services_response.service
    door.command("revoke", reader["id"])
    await until_admitted(door, reader["token"], wanted=False)
    await call.write(question)
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        assert not await call.read(), "a caller whose token was revoked got an answer"
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_watch_ends_when_its_key_is_withdrawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that goes takes all that is known of its tokens; that must not leave a watch open for ever."""
    monkeypatch.setattr(key_set, "RETRY_SECONDS", 0.0)
    stolen, renewed = IdentityProvider("stolen"), IdentityProvider("renewed")
    (tmp_path / "jwks.json").write_text(jwks(stolen))
    async with running_server(tmp_path, TOML) as server, connect(server.address) as client:
        thief, owner = bearer(stolen.token()), bearer(renewed.token())
        session = await client.sessions.CreateSession(metadata=thief)
        watch = client.events.WatchEvents(session_id=session.id, metadata=thief)
        assert (await watch.read()).events
        (tmp_path / "jwks.json").write_text(jwks(renewed))
        send = SendMessageRequest(session_id=session.id, parts=[MessagePart(text=TextPart(text="hello"))])
        await client.messages.SendMessage(send, metadata=owner)  # its key is not known, so the keys are read
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            assert not await watch.read(), "an event reached a caller whose key was withdrawn"
        assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_wrong_credentials_all_fail_alike(door: Door, create: Create) -> None:
    """Code, text, details and metadata are the same bytes whatever is wrong; GetServerInfo fails like the rest."""
    revoked = create()
    door.command("revoke", revoked["id"])
    expired = PROVIDER.token(exp=1)
    wrong = {
        "unknown": f"Bearer {new_token()}",
        "mistyped": f"Bearer {new_token()[:-1]}!",
        "revoked": f"Bearer {revoked['token']}",
        "expired": f"Bearer {expired}",
        "forged": f"Bearer {IdentityProvider().token()}",
        "alg none": f"Bearer {assembled({'alg': 'none'}, PROVIDER.claims())}",
        "other audience": f"Bearer {PROVIDER.token(aud='mail')}",
        "no tenant": f"Bearer {PROVIDER.token(tenant=None)}",
        "huge": "Bearer tw_" + "x" * 10_000,
        "not this way": "Basic ZXZlOmV2ZQ==",
        "no scheme": PROVIDER.token(),
        "nothing": "",
        "garbage": "Bearer \x01\x02",
    }
    found = {}
    for name, value in wrong.items():
        if not value.isprintable():
            continue  # gRPC itself sends no such metadata
        for call, request in (
            (door.client.server.GetServerInfo, GetServerInfoRequest()),
            (door.client.sessions.ListSessions, ListSessionsRequest()),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(request, metadata=(("authorization", value),))
            error = refused.value
            found[name, call] = (error.code(), error.details(), tuple(error.trailing_metadata() or ()))
    assert len(found) == 24 and len(set(found.values())) == 1
    [(code, text, _)] = set(found.values())
    assert (code, "credentials are not valid" in (text or "")) == (grpc.StatusCode.UNAUTHENTICATED, True)


async def test_two_credentials_are_none(door: Door) -> None:
    """A caller that sends the metadata twice is refused, even if both are right."""
    twice = (*bearer(PROVIDER.token()), *bearer(PROVIDER.token()))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await door.client.sessions.ListSessions(metadata=twice)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_tokens_stay_out_of_the_log(door: Door) -> None:
    """Right and wrong ones; the line of a refused call has the cause."""
    right, wrong = PROVIDER.token(), IdentityProvider().token()
    with capture_logs() as lines:
        assert await door.admitted(right)
        assert not await door.admitted(wrong)
    text = repr(lines)
    assert not any(part in text for token in (right, wrong) for part in token.split("."))
    [refused] = [line for line in lines if line["event"] == "caller_refused"]
    assert (refused["cause"], refused["address"]) == ("a JWT that fails its check: InvalidSignatureError", "127.0.0.1")


async def test_roles_decide(door: Door) -> None:
    """A reader lists and sends nothing; the error names both roles."""
    reader = bearer(PROVIDER.token(role="reader"))
    await door.client.sessions.ListSessions(metadata=reader)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await door.client.sessions.CreateSession(metadata=reader)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert refused.value.details() == "this call needs the role writer, and the caller is a reader"


async def test_deleting_a_session_is_in_the_audit_log(door: Door) -> None:
    """With who did it."""
    eve = bearer(PROVIDER.token())
    session = await door.client.sessions.CreateSession(metadata=eve)
    with capture_logs() as lines:
        await door.client.sessions.DeleteSession(session_id=session.id, metadata=eve)
    [line] = [line for line in lines if line["event"] == "audit"]
    assert (line["action"], line["subject"], line["session_id"]) == ("session_deleted", "eve", session.id)


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_asks_for_a_reader(door: Door, version: str) -> None:
    """In both versions; a stranger sees no service."""
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    call = door.client.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    reader = bearer(PROVIDER.token(role="reader"))
    [answer] = [answer async for answer in call(iter([request]), metadata=reader)]
    assert "opencode.message.MessageService" in {s.name for s in answer.list_services_response.service}
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        [_ async for _ in call(iter([request]))]
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_without_authentication_everybody_is_an_admin(tmp_path: Path) -> None:
    """No credentials change that, as before callers were identified."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        assert isinstance(server, Server)
        for metadata in ((), bearer("anything")):
            told = await client.server.GetServerInfo(metadata=metadata)
            assert told.caller == Caller(tenant="default", role="admin")
        assert (
            await ServerReflectionStub(client.channel)
            .ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
            .read()
        )
