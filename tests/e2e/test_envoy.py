"""The proxy of examples/deploy: the real Envoy, with the published files, in front of a real server.

It runs where `envoy` is installed, or where TURNWIRE_TEST_ENVOY names the program.
"""

import http.client
import json
import shutil
import ssl
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from opencode.event.event_pb2 import WatchEventsRequest
from opencode.event.event_pb2_grpc import EventServiceStub
from opencode.message.message_pb2 import (
    MessagePart,
    SendMessageRequest,
    StreamMessageRequest,
    StreamMessageResponse,
    TextPart,
)
from opencode.message.message_pb2_grpc import MessageServiceStub
from opencode.server.server_pb2 import GetServerInfoRequest, GetServerInfoResponse
from opencode.server.server_pb2_grpc import ServerServiceStub
from opencode.session.session_pb2 import GetSessionRequest
from opencode.session.session_pb2_grpc import SessionServiceStub
from tests.support.servers.envoy import ENVOY, Proxy, envoy, write_certificate
from tests.support.servers.mcp import own_port
from tests.support.servers.serving import serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(ENVOY is None, reason="Envoy is not installed; TURNWIRE_TEST_ENVOY can name it"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]
ORIGIN = "https://app.example.com"
"""A page of another origin that the server lets in."""


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Envoy with the published limits; the server sends a heartbeat each second."""
    with (
        both_listeners(tmp_path_factory.mktemp("server")) as addresses,
        envoy(tmp_path_factory.mktemp("envoy"), *addresses) as running,
    ):
        yield running


@contextmanager
def both_listeners(folder: Path) -> Iterator[tuple[str, str]]:
    """Runs a server; the addresses of its listeners."""
    with own_port() as port:
        web = f'[web]\nlisten = "127.0.0.1:{port}"\nallowed_origins = ["{ORIGIN}"]\n'
        with serving(folder, f"[server]\nheartbeat_seconds = 1\n{web}") as address:
            yield address, f"127.0.0.1:{port}"


def channel(proxy: Proxy) -> grpc.Channel:
    """A channel as a client opens it."""
    return grpc.secure_channel(f"localhost:{proxy.port}", grpc.ssl_channel_credentials(proxy.authority))


@pytest.fixture
def browser(proxy: Proxy) -> Iterator[http.client.HTTPSConnection]:
    """A connection of a browser."""
    with browsing(proxy) as connection:
        yield connection


def browsing(proxy: Proxy) -> closing[http.client.HTTPSConnection]:
    """Connects over HTTP/1.1 and trusts the proxy's certificate alone."""
    context = ssl.create_default_context(cadata=proxy.authority.decode())
    return closing(http.client.HTTPSConnection("localhost", proxy.port, context=context, timeout=200))


def web(connection: http.client.HTTPSConnection, name: str, request: Message) -> http.client.HTTPResponse:
    """Sends a gRPC-Web request as a browser's client does."""
    headers = {"content-type": "application/grpc-web+proto", "x-grpc-web": "1", "origin": ORIGIN}
    connection.request("POST", f"/{name}", frame(request), headers)
    return connection.getresponse()


def frame(request: Message) -> bytes:
    """A message as gRPC-Web sends it."""
    data = request.SerializeToString()
    return struct.pack(">BI", 0, len(data)) + data


def frames(response: http.client.HTTPResponse) -> Iterator[tuple[int, bytes]]:
    """Yields flag and content of each frame when it has come; 0x80 marks the trailers."""
    while head := response.read(5):
        flag, length = struct.unpack(">BI", head)
        yield flag, response.read(length)


def say(text: str) -> StreamMessageRequest:
    """A message for a new session."""
    return StreamMessageRequest(message=SendMessageRequest(parts=[MessagePart(text=TextPart(text=text))]))


def test_grpc_passes_with_tls(proxy: Proxy) -> None:
    """A stream comes event by event."""
    with channel(proxy) as connected:
        answers = MessageServiceStub(connected).StreamMessage(say("/rate 50\none two three"), timeout=200)
        events = [event for answer in answers for event in answer.events]
    finished = [event.part_finished.part.text.text for event in events if event.HasField("part_finished")]
    assert finished == ["one two three"]  # the first words may come in a snapshot
    words = "".join(event.part_delta.text for event in events)
    assert words and "one two three".endswith(words)
    assert events[-1].WhichOneof("kind") == "turn_ended"


def test_errors_keep_their_details(proxy: Proxy) -> None:
    """Status, reason and the server's text come through."""
    with channel(proxy) as connected, pytest.raises(grpc.RpcError) as failed:
        SessionServiceStub(connected).GetSession(GetSessionRequest(session_id="ses_none"), timeout=200)
    status = rpc_status.from_call(failed.value)
    info = error_details_pb2.ErrorInfo()
    assert failed.value.code() is grpc.StatusCode.NOT_FOUND
    assert status and any(detail.Unpack(info) for detail in status.details)
    assert info.reason == "SESSION_NOT_FOUND"


def test_a_browser_calls_a_method(browser: http.client.HTTPSConnection) -> None:
    """gRPC-Web over HTTP/1.1: message, trailers, and the headers that let the page read them."""
    response = web(browser, "opencode.server.ServerService/GetServerInfo", GetServerInfoRequest())
    (flag, data), (last, trailers) = frames(response)
    assert (response.status, flag, last) == (200, 0, 0x80)
    assert GetServerInfoResponse.FromString(data).version
    assert b"grpc-status: 0" in trailers
    assert response.headers["access-control-allow-origin"] == ORIGIN
    assert "grpc-status" in response.headers["access-control-expose-headers"]


def test_a_browser_gets_errors(browser: http.client.HTTPSConnection) -> None:
    """In headers or trailers, where its client looks for them."""
    response = web(browser, "opencode.session.SessionService/GetSession", GetSessionRequest(session_id="ses_none"))
    trailers = b"".join(data for flag, data in frames(response) if flag == 0x80).decode()
    assert "grpc-status: 5" in trailers


def test_a_browser_streams(browser: http.client.HTTPSConnection) -> None:
    """The first words are there while the model still writes: nothing buffers the answer."""
    response = web(browser, "opencode.message.MessageService/StreamMessage", say("/rate 5\n/words 10"))
    kinds = []
    for flag, data in frames(response):
        if flag == 0x80:
            assert b"grpc-status: 0" in data
            break
        kinds.append({event.WhichOneof("kind") for event in StreamMessageResponse.FromString(data).events})
    assert "part_delta" in set().union(*kinds[:-1])
    assert "turn_ended" in kinds[-1]
    assert len(kinds) > 5


@pytest.mark.parametrize(("origin", "allowed"), [(ORIGIN, ORIGIN), ("https://elsewhere.example", None)])
def test_preflights_let_in_named_pages_only(
    browser: http.client.HTTPSConnection, origin: str, allowed: str | None
) -> None:
    """A browser asks before it sends; another page gets no permission."""
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-grpc-web"}
    browser.request("OPTIONS", "/opencode.server.ServerService/GetServerInfo", headers={"origin": origin, **asked})
    headers = browser.getresponse().headers
    assert headers["access-control-allow-origin"] == allowed
    assert ("authorization" in (headers["access-control-allow-headers"] or "")) == (allowed is not None)


def test_browsers_have_http2(proxy: Proxy, tmp_path: Path) -> None:
    """The console, and calls by JSON, of which all share one connection."""
    (tmp_path / "authority.pem").write_bytes(proxy.authority)
    url = f"https://localhost:{proxy.port}"
    command = ["curl", "--silent", "--show-error", "--fail", "--http2", "--cacert", str(tmp_path / "authority.pem")]
    command += ["--write-out", "\\n%{http_version} %{num_connects}\\n", f"{url}/readyz"]
    command += ["--next", *command[1:-1], "--header", "content-type: application/json", "--data", "{}"]
    done = subprocess.run(
        [*command, f"{url}/opencode.server.ServerService/GetServerInfo"], check=True, capture_output=True, text=True
    )
    ready, first, answer, second = [line for line in done.stdout.splitlines() if line]
    assert (ready, first, second) == ("ok", "2 1", "2 0")
    assert json.loads(answer)["version"]


def test_a_watch_stays_open(proxy: Proxy) -> None:
    """Past the 15 seconds after which Envoy by default ends a request."""
    with channel(proxy) as connected:
        watch = EventServiceStub(connected).WatchEvents(WatchEventsRequest())
        beats = 0
        for answer in watch:
            beats += sum(event.HasField("heartbeat") for event in answer.events)
            if beats == 17:
                break
        assert watch.is_active()
        watch.cancel()


def test_a_renewed_certificate_is_served(proxy: Proxy) -> None:
    """Without a restart: new connections get it, and trust nothing else."""
    before = proxy.authority
    write_certificate(proxy.certificates)
    assert proxy.authority != before
    for _ in range(100):
        with channel(proxy) as connected:
            try:
                grpc.channel_ready_future(connected).result(timeout=0.3)
            except grpc.FutureTimeoutError:
                continue
            assert ServerServiceStub(connected).GetServerInfo(GetServerInfoRequest(), timeout=200).version
            return
    raise AssertionError("the new certificate is not served")


@pytest.mark.parametrize(
    "published",
    [
        "{max_tokens: 2000, tokens_per_fill: 1000, fill_interval: 1s}",
        "{max_tokens: 400, tokens_per_fill: 200, fill_interval: 1s}",
    ],
    ids=["all", "one address"],
)
def test_too_many_requests_are_refused(tmp_path: Path, published: str) -> None:
    """Before they reach the server, here after five: of all together, or of one address."""
    few = {published: "{max_tokens: 5, tokens_per_fill: 1, fill_interval: 3600s}"}
    codes = []
    with both_listeners(tmp_path) as addresses, envoy(tmp_path, *addresses, few) as proxy, channel(proxy) as connected:
        for _ in range(7):
            try:
                ServerServiceStub(connected).GetServerInfo(GetServerInfoRequest(), timeout=200)
                codes.append("OK")
            except grpc.RpcError as error:
                codes.append(error.code().name)
        with browsing(proxy) as browser:
            response = web(browser, "opencode.server.ServerService/GetServerInfo", GetServerInfoRequest())
            assert response.status == 429
    assert codes == ["OK"] * 5 + ["RESOURCE_EXHAUSTED"] * 2


def test_a_server_that_is_gone_is_unavailable(tmp_path: Path) -> None:
    """The proxy says so at once and does not keep the caller waiting."""
    with ExitStack() as running:
        server = running.enter_context(ExitStack())
        proxy = running.enter_context(envoy(tmp_path, *server.enter_context(both_listeners(tmp_path))))
        connected = running.enter_context(channel(proxy))
        ServerServiceStub(connected).GetServerInfo(GetServerInfoRequest(), timeout=200)
        server.close()
        with pytest.raises(grpc.RpcError) as failed:
            ServerServiceStub(connected).GetServerInfo(GetServerInfoRequest(), timeout=200)
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
