"""The web listener's other protocols: gRPC-Web, compression, deadlines, TLS, and who may call."""

import asyncio
import base64
import gzip
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from opencode.event.event_pb2 import WatchEventsRequest, WatchEventsResponse
from opencode.message.message_pb2 import StreamMessageRequest, StreamMessageResponse
from opencode.server.server_pb2 import GetServerInfoRequest, GetServerInfoResponse
from opencode.session.session_pb2 import CreateSessionRequest, GetSessionRequest, SessionInfo
from tests.support.clients.conversation import ask
from tests.support.clients.web import END, WebClient, web_client
from tests.support.servers.collector import collector
from tests.support.servers.encrypted import AUTHORITY, CLIENTS, MTLS, tls
from tests.support.servers.running import running_server
from tests.support.servers.tenants import PROVIDER, server_of_tenants
from turnwire.api.web.encoding.envelopes import Envelope, envelope, envelopes
from turnwire.app import Server
from turnwire.config import ConfigError

TOML = """
[server]
heartbeat_seconds = 0.2
[web]
listen = "127.0.0.1:0"
"""
SESSIONS = "/opencode.session.SessionService"
INFO = "/opencode.server.ServerService/GetServerInfo"
TRAILERS = 0x80


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server with a web listener and quick heartbeats."""
    async with running_server(tmp_path_factory.mktemp("protocols"), TOML) as running:
        yield running


@pytest.fixture
async def web(server: Server) -> AsyncIterator[WebClient]:
    """A client of the web listener."""
    async with web_client(server.web_address, headers={"accept-encoding": "identity"}) as client:
        yield client


def trailers_of(last: Envelope) -> dict[str, str]:
    """Returns the trailers in the last envelope of gRPC-Web."""
    assert last.flags == TRAILERS
    return dict(line.split(": ", 1) for line in last.data.decode().splitlines())


@pytest.mark.parametrize("kind", ["application/grpc-web", "application/grpc-web+proto", "application/grpc-web-text"])
async def test_grpc_web_answers_once(web: WebClient, kind: str) -> None:
    """A unary call is one message and the trailers, in binary and as text."""
    body = envelope(0, CreateSessionRequest(title="A").SerializeToString())
    sent = base64.b64encode(body) if "text" in kind else body
    answer = await web.send(f"{SESSIONS}/CreateSession", sent, content_type=kind, x_grpc_web="1")
    assert (answer.status, answer.headers["content-type"]) == (200, kind)
    message, last = envelopes(base64.b64decode(answer.body) if "text" in kind else answer.body)
    assert SessionInfo.FromString(message.data).title == "A"
    assert trailers_of(last) == {"grpc-status": "0"}


async def test_grpc_web_streams(web: WebClient) -> None:
    """A stream is one message after the other; an error is in the trailers, with its details."""
    body = envelope(0, StreamMessageRequest(message=ask("Hello")).SerializeToString())
    kind = "application/grpc-web+proto"
    answer = await web.send("/opencode.message.MessageService/StreamMessage", body, content_type=kind)
    *messages, last = envelopes(answer.body)
    assert StreamMessageResponse.FromString(messages[0].data).accepted.message_id
    assert trailers_of(last) == {"grpc-status": "0"}
    body = envelope(0, GetSessionRequest(session_id="ses_0").SerializeToString())
    (last,) = envelopes((await web.send(f"{SESSIONS}/GetSession", body, content_type=kind)).body)
    found = trailers_of(last)
    assert found["grpc-status"] == "5"
    assert b"SESSION_NOT_FOUND" in base64.b64decode(found["grpc-status-details-bin"] + "===")


async def test_messages_are_compressed(web: WebClient) -> None:
    """Requests may come compressed; answers are, when the caller takes it and they are long enough."""
    sent = gzip.compress(b'{"title": "small"}')
    made = await web.send(f"{SESSIONS}/CreateSession", sent, content_type="application/json", content_encoding="gzip")
    assert made.json()["title"] == "small"
    answer = await web.proto("server.ServerService/GetServerInfo", GetServerInfoRequest(), accept_encoding="br, gzip")
    assert answer.headers["content-encoding"] == "gzip"
    assert GetServerInfoResponse.FromString(gzip.decompress(answer.body)).version
    unknown = await web.send(INFO, b"", content_type="application/proto", content_encoding="br")
    assert (unknown.status, unknown.json()["code"]) == (501, "unimplemented")


async def test_a_silent_watch_has_heartbeats(web: WebClient) -> None:
    """Proxies and clients see that a watch lives while nothing happens."""
    async with web.stream("event.EventService/WatchEvents", WatchEventsRequest()) as stream:
        async for found in stream:
            if any(event.HasField("heartbeat") for event in WatchEventsResponse.FromString(found.data).events):
                break


async def test_deadlines_end_calls(web: WebClient) -> None:
    """A stream whose deadline passes ends with that error; a deadline that is none is refused."""
    async with web.stream("event.EventService/WatchEvents", WatchEventsRequest(), connect_timeout_ms="300") as stream:
        _, ending = await stream.all()
    assert ending["error"]["code"] == "deadline_exceeded"
    wrong = await web.json("server.ServerService/GetServerInfo", {}, connect_timeout_ms="soon")
    assert (wrong.status, wrong.json()["code"]) == (400, "invalid_argument")
    body = envelope(0, WatchEventsRequest().SerializeToString())
    answer = await web.send(
        "/opencode.event.EventService/WatchEvents", body, content_type="application/grpc-web", grpc_timeout="300m"
    )
    assert trailers_of(list(envelopes(answer.body))[-1])["grpc-status"] == "4"


async def test_tokens_come_in_a_header_and_never_in_the_address(tmp_path: Path) -> None:
    """A call needs the token of its caller; one in the query, which logs and histories keep, is not looked at."""
    token = PROVIDER.token(tenant="acme", sub="eve", role="reader")
    async with server_of_tenants(tmp_path, TOML) as server, web_client(server.web_address) as web:
        method = "session.SessionService/ListSessions"
        assert (await web.json(method, {}, authorization=f"Bearer {token}")).status == 200
        missing = await web.json(method, {})
        assert (missing.status, missing.json()["code"]) == (401, "unauthenticated")
        query = f"?connect=v1&encoding=json&message=%7B%7D&authorization=Bearer%20{token}&access_token={token}"
        assert (await web.send(f"/opencode.{method}{query}", verb="GET")).status == 401
        refused = await web.json("session.SessionService/CreateSession", {}, authorization=f"Bearer {token}")
        assert (refused.status, refused.json()["code"]) == (403, "permission_denied")
        other = await web.json(method, {}, authorization=f"Bearer {token}", turnwire_tenant="other")
        assert other.status == 403
        async with web.stream("event.EventService/WatchEvents", WatchEventsRequest()) as stream:
            _, ending = await stream.all()
        assert ending["error"]["code"] == "unauthenticated"


async def test_tls_serves_renewed_certificates(tmp_path: Path) -> None:
    """Those of `[tls]`, as they are when a client connects. HTTP/2 is not spoken, whatever a client asks for."""
    context = ssl.create_default_context(cadata=AUTHORITY.pem.decode())
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with running_server(tmp_path, tls(tmp_path) + TOML) as server:
        assert server.web_address.startswith("https://")
        connector = aiohttp.TCPConnector(ssl=context)
        async with web_client(server.web_address, connector=connector) as web:
            answer = await web.json("server.ServerService/GetServerInfo", {}, accept_encoding="identity")
            assert answer.json()["caller"].get("tenant") == "default"
        AUTHORITY.issue("renewed").write(tmp_path, "server")
        _, writer = await asyncio.open_connection(*server.web_address[8:].rsplit(":", 1), ssl=context)
        subject = dict(pair for group in writer.get_extra_info("peercert")["subject"] for pair in group)
        assert subject == {"commonName": "renewed"}
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        writer.transport.abort()


async def test_client_certificates_are_for_grpc(tmp_path: Path) -> None:
    """Where clients of gRPC present one, those of the web listener sign in by a token, and by nothing else."""
    auth = MTLS.replace('["mtls"]', '["mtls", "token"]')
    context = ssl.create_default_context(cadata=AUTHORITY.pem.decode())
    context.load_cert_chain(*CLIENTS.issue("ci").write(tmp_path, "ci"))
    async with (
        running_server(tmp_path, tls(tmp_path, client_ca=True) + auth + TOML) as server,
        web_client(server.web_address, connector=aiohttp.TCPConnector(ssl=context)) as web,
    ):
        answer = await web.json("session.SessionService/ListSessions", {})
        assert (answer.status, answer.json()["code"]) == (401, "unauthenticated")
    with pytest.raises(ConfigError, match=r"web\.listen.*no certificates"):
        async with running_server(tmp_path, tls(tmp_path, client_ca=True) + MTLS + TOML):
            pass


async def test_an_open_address_needs_protection(tmp_path: Path) -> None:
    """The rule is that of the gRPC listener: TLS and authentication, or the word that neither is meant."""
    with pytest.raises(ConfigError, match=r"web\.listen.*tls\.cert and tls\.key and auth\.methods"):
        async with running_server(tmp_path, '[web]\nlisten = "0.0.0.0:0"\n'):
            pass
    async with running_server(tmp_path, '[web]\nlisten = "0.0.0.0:0"\ninsecure = true\n') as server:
        assert server.web_address


async def test_an_open_address_is_called_by_names_that_are_allowed(tmp_path: Path) -> None:
    """Else a page whose own name resolves to this address would have all that its visitor can reach."""
    toml = '[web]\nlisten = "0.0.0.0:0"\ninsecure = true\nallowed_hosts = ["turnwire.example"]\n'
    async with running_server(tmp_path, toml) as server, web_client(server.web_address) as web:
        found = {
            host: (await web.json("session.SessionService/ListSessions", {}, host=host)).status
            for host in ("evil.example", "turnwire.example", "192.0.2.1:8080", "localhost")
        }
        refused = await web.json("session.SessionService/ListSessions", {}, host="evil.example")
    assert found == {"evil.example": 403, "turnwire.example": 200, "192.0.2.1:8080": 200, "localhost": 200}
    assert (
        refused.json()["message"] == "this server is not reached as 'evil.example': add the name to web.allowed_hosts"
    )


async def test_health_needs_no_credentials(tmp_path: Path) -> None:
    """A load balancer asks by any name; methods beside it stay closed."""
    toml = TOML + '[auth]\nmethods = ["token"]\n'
    async with running_server(tmp_path, toml) as server, web_client(server.web_address) as web:
        for path in ("/healthz", "/readyz"):
            answer = await web.send(path, verb="GET", host="pod-1.internal")
            assert (answer.status, answer.body, answer.headers["cache-control"]) == (200, b"ok\n", "no-store")
        assert (await web.json("session.SessionService/ListSessions", {})).status == 401


async def test_a_taken_address_stops_the_start(server: Server, tmp_path: Path) -> None:
    """The message names the key to change."""
    address = server.web_address.rpartition("//")[2]
    with pytest.raises(OSError, match=r"web\.listen"):
        async with running_server(tmp_path, f'[web]\nlisten = "{address}"\n'):
            pass


async def test_the_last_envelope_is_marked(web: WebClient) -> None:
    """A stream that fails has HTTP status 200 and one envelope, the last one."""
    async with web.stream("event.EventService/WatchEvents", WatchEventsRequest(session_id="ses_0")) as stream:
        found = [one async for one in stream]
    assert (stream.answer.status, [one.flags for one in found]) == (200, [END])


@pytest.mark.slow
async def test_a_call_continues_the_trace_of_its_page(tmp_path: Path) -> None:
    """Calls over HTTP have spans as those over gRPC have."""
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    async with collector() as traces:
        async with (
            running_server(tmp_path, TOML + traces.configuration()) as server,
            web_client(server.web_address) as web,
        ):
            placed = f"00-{trace}-00f067aa0ba902b7-01"
            await web.json("session.SessionService/GetSession", {"sessionId": "ses_0"}, traceparent=placed)
        span = traces.one("opencode.session.SessionService/GetSession")
    assert (span.trace_id, span.failed, span.attributes["rpc.response.status_code"]) == (trace, False, "NOT_FOUND")
