"""The web listener: Connect with JSON and protobuf, and which pages may call."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2 as details
from grpc_status import rpc_status

from opencode.event.event_pb2 import SubscribeGlobalEventsRequest
from opencode.message.message_pb2 import StreamMessageRequest, StreamMessageResponse
from opencode.session.session_pb2 import GetSessionRequest, GetSessionResponse
from tests.support.clients.conversation import ask
from tests.support.clients.web import WebClient, web_client
from tests.support.servers.running import Client, connect, running_server
from turnwire.app import Server

TOML = """
[web]
listen = "127.0.0.1:0"
allowed_origins = ["https://app.example"]
"""


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server with a web listener."""
    async with running_server(tmp_path_factory.mktemp("web"), TOML) as running:
        yield running


@pytest.fixture
async def web(server: Server) -> AsyncIterator[WebClient]:
    """A client of the web listener."""
    async with web_client(server.web_address) as client:
        yield client


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    """A client of the gRPC listener of the same server."""
    async with connect(server.address) as connected:
        yield connected


async def test_json_creates_what_grpc_reads(web: WebClient, client: Client) -> None:
    """A session that is made by JSON is the session that gRPC answers, with fields in camel case."""
    made = await web.json("session.SessionService/CreateSession", {"title": "First", "no_such_field": 1})
    assert (made.status, made.headers["content-type"]) == (200, "application/json")
    session = (await client.sessions.GetSession(session_id=made.json()["id"])).session
    assert (session.title, str(session.head_sequence)) == ("First", made.json()["headSequence"])


async def test_protobuf_is_what_grpc_sends(web: WebClient, client: Client) -> None:
    """The bytes of an answer are those that gRPC sends, and GET answers the same as POST."""
    made = await web.json("session.SessionService/CreateSession", {"title": "Second"})
    request = GetSessionRequest(session_id=made.json()["id"])
    answer = await web.proto("session.SessionService/GetSession", request)
    assert GetSessionResponse.FromString(answer.body) == await client.sessions.GetSession(request)
    message = base64.urlsafe_b64encode(request.SerializeToString()).rstrip(b"=").decode()
    path = f"/opencode.session.SessionService/GetSession?connect=v1&encoding=proto&base64=1&message={message}"
    read = await web.send(path, verb="GET")
    assert (read.status, read.body, read.headers["cache-control"]) == (200, answer.body, "no-store")


async def test_get_is_for_reads_only(web: WebClient) -> None:
    """A method that changes something answers 405 to GET: a link must not change anything."""
    path = "/opencode.session.SessionService/CreateSession?connect=v1&encoding=json&message=%7B%7D"
    answer = await web.send(path, verb="GET")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("codec", ["proto", "json"])
async def test_a_stream_tells_all_events(web: WebClient, codec: str) -> None:
    """A stream brings the events of a turn in envelopes; the last one says that it went well."""
    request = StreamMessageRequest(message=ask("Every word is an event."))
    async with web.stream("message.MessageService/StreamMessage", request, codec=codec) as stream:
        assert (stream.answer.status, stream.answer.content_type) == (200, f"application/connect+{codec}")
        messages, ending = await stream.all()
    assert ending == {}
    if codec == "proto":
        assert StreamMessageResponse.FromString(messages[0]).accepted.session_id
    else:
        assert b'"accepted"' in messages[0] and b'"turnEnded"' in messages[-1]


async def test_errors_have_the_details_of_grpc(web: WebClient, client: Client) -> None:
    """Code, message and details are the same in both listeners; the HTTP status is that of the code."""
    request = GetSessionRequest(session_id="ses_0")
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await client.sessions.GetSession(request)
    status = rpc_status.from_call(failed.value)
    assert status is not None
    answer = await web.json("session.SessionService/GetSession", {"sessionId": "ses_0"})
    error = answer.json()
    assert (answer.status, error["code"], error["message"]) == (404, "not_found", status.message)
    sent = [(detail["type"], base64.b64decode(detail["value"] + "===")) for detail in error["details"]]
    assert [kind for kind, _ in sent] == [detail.TypeName() for detail in status.details]
    infos = [details.ErrorInfo.FromString(value) for kind, value in sent if kind == "google.rpc.ErrorInfo"]
    assert [info.reason for info in infos] == ["SESSION_NOT_FOUND"]


async def test_pages_of_other_origins_need_permission(web: WebClient) -> None:
    """A page that is named may call and read the answer; another one gets the error of its protocol, and no header."""
    method, good, evil = "session.SessionService/ListSessions", "https://app.example", "https://evil.example"
    allowed = await web.json(method, {}, origin=good)
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, good)
    assert "grpc-status" in allowed.headers["access-control-expose-headers"]
    refused = await web.json(method, {}, origin=evil)
    assert (refused.status, refused.json()["code"]) == (403, "permission_denied")
    assert "access-control-allow-origin" not in refused.headers
    for origin, is_allowed in ((good, True), (evil, False)):
        asked = await web.send(
            f"/opencode.{method}", verb="OPTIONS", origin=origin, access_control_request_method="POST"
        )
        assert (asked.status, "access-control-allow-methods" in asked.headers) == (204, is_allowed)
    own = await web.json(method, {}, origin=web.url)
    assert own.status == 200


async def test_a_foreign_name_of_this_machine_is_refused(web: WebClient) -> None:
    """A page whose own name resolves to this machine counts as of the same origin, and may not call all the same."""
    answer = await web.json(
        "session.SessionService/ListSessions", {}, host="evil.example", origin="http://evil.example"
    )
    assert (answer.status, answer.json()["code"]) == (403, "permission_denied")
    read = await web.send(
        "/opencode.session.SessionService/ListSessions?encoding=json&message=%7B%7D", verb="GET", host="evil.example"
    )
    assert read.status == 403


async def test_without_a_console_there_is_a_plain_page(web: WebClient) -> None:
    """The start page says that the server runs; it loads nothing and is shown in no frame."""
    page = await web.send("/", verb="GET")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"


async def test_stops_soon_with_an_open_stream(tmp_path: Path) -> None:
    """A watch ends with an error of its protocol when the server stops."""
    async with (
        running_server(tmp_path, TOML) as running,
        web_client(running.web_address) as client,
        client.stream("event.EventService/SubscribeGlobalEvents", SubscribeGlobalEventsRequest()) as stream,
    ):
        await running.__aexit__(None, None, None)
        messages, ending = await stream.all()
    assert (messages, ending["error"]["code"]) == ([], "unavailable")
