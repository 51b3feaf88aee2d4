"""Tool calls that a person must allow first."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from opencode.event.event_pb2 import GlobalEvent
from opencode.message.content_pb2 import FINISH_REASON_ABORTED, FINISH_REASON_STOP
from opencode.message.message_pb2 import SendMessageResponse
from opencode.tool.tool_pb2 import PERMISSION_REPLY_CANCELLED, PermissionRequest, PermissionResponse
from tests.support.clients.conversation import (
    answer_to,
    ask,
    new_session,
    refused,
    talk,
    tool,
    turn_ended,
    watching,
    words_of,
)
from tests.support.servers.mcp import calls_of, mcp_client, stdio
from tests.support.servers.running import Client

RULES = """
[permissions]
"test.*" = "ask"
"test.count" = "allow"
"look" = "ask"

[agents.free.permissions]
"test.add" = "allow"
"""
ADD = '/tool test.add {"a": 2, "b": 3}'


@pytest.fixture(scope="module")
async def shared_client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server whose MCP server's tools ask, all but one."""
    folder = tmp_path_factory.mktemp("permissions")
    async with mcp_client(folder, stdio(folder) + RULES) as connected:
        yield connected


@pytest.fixture
async def client(shared_client: Client) -> AsyncIterator[Client]:
    """A client of that server. Turns that a test leaves waiting for an answer end with the test."""
    yield shared_client
    for request in (await shared_client.permissions.ListPermissions()).permissions:
        await shared_client.messages.AbortSession(session_id=request.session_id)


async def asked(
    client: Client, words: str, count: int = 1, **fields: object
) -> tuple[SendMessageResponse, list[PermissionRequest]]:
    """Sends a message and returns the permission requests that come of it."""
    accepted = await client.messages.SendMessage(ask(words, **fields))
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        await watch.until_kind("permission_asked", count)
    return accepted, [e.permission_asked.permission for e in watch.events if e.HasField("permission_asked")]


def response(request: PermissionRequest, word: str, **fields: str) -> PermissionResponse:
    """Returns an answer."""
    return PermissionResponse(session_id=request.session_id, permission_id=request.id, response=word, **fields)


@pytest.mark.parametrize("word", ["approve", "once"])
async def test_allowed_call_runs(client: Client, word: str) -> None:
    """The request names call, tool and arguments; until it is answered the call is pending and names the request."""
    accepted, (request,) = await asked(client, ADD)
    (call,) = await calls_of(client, accepted)
    assert (call.status, call.permission_id) == ("pending", request.id)
    assert (request.type, list(request.pattern), request.title) == (
        "test.add",
        ["test.add"],
        'test.add {"a": 2, "b": 3}',
    )
    assert (request.tool_call_id, request.call_id, request.turn_id) == (call.id, call.call_id, accepted.turn_id)
    assert request.metadata_json == '{"arguments":{"a": 2, "b": 3}}'
    await client.permissions.RespondToPermission(response(request, word))
    assert (await turn_ended(client, accepted)).turn_ended.turn.finish_reason == FINISH_REASON_STOP
    (call,) = await calls_of(client, accepted)
    assert (call.status, call.output, call.HasField("permission_id")) == ("success", "the sum is 5", False)


async def test_rejected_call_does_not_run(client: Client) -> None:
    """The model reads who said no and why, and the turn goes on."""
    accepted, (request,) = await asked(client, ADD)
    await client.permissions.RespondToPermission(response(request, "reject", reason="never add"))
    assert (await turn_ended(client, accepted)).turn_ended.turn.finish_reason == FINISH_REASON_STOP
    (call,) = await calls_of(client, accepted)
    assert (call.status, call.error) == ("error", "The user did not allow this call. The user said: never add")
    assert "never add" in words_of(await answer_to(client, accepted))


async def test_first_answer_wins(client: Client) -> None:
    """The same one again is confirmed, now and later; another one is FAILED_PRECONDITION; an unknown one NOT_FOUND."""
    accepted, (request,) = await asked(client, ADD)
    outcomes = await asyncio.gather(
        *(client.permissions.RespondToPermission(response(request, word)) for word in ("reject", "reject", "always")),
        return_exceptions=True,
    )
    assert [isinstance(outcome, grpc.aio.AioRpcError) for outcome in outcomes].count(True) >= 1
    await turn_ended(client, accepted)
    (call,) = await calls_of(client, accepted)
    words = {"error": "reject", "success": "always"}
    same, other = words.pop(call.status), words.popitem()[1]
    await client.permissions.RespondToPermission(response(request, same))
    refusal = await refused(client.permissions.RespondToPermission(response(request, other)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "PERMISSION_ALREADY_ANSWERED")
    elsewhere = PermissionRequest(session_id=await new_session(client), id=request.id)
    for unknown in (PermissionRequest(session_id=request.session_id, id="per_none"), elsewhere):
        refusal = await refused(client.permissions.RespondToPermission(response(unknown, "once")))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "PERMISSION_REQUEST_NOT_FOUND")


async def test_always_holds_for_the_session(client: Client) -> None:
    """Also for the other open request of that tool; another tool and another session still ask."""
    pause = '/tool test.pause {"seconds": 0}'
    accepted, requests = await asked(client, f"{ADD}\n{ADD}\n{pause}", 3)
    await client.permissions.RespondToPermission(response(requests[1], "always"))
    assert await open_ids(client, accepted.session_id) == [requests[2].id]
    await client.permissions.RespondToPermission(response(requests[2], "once"))
    await turn_ended(client, accepted)
    again = await talk(client, ADD, accepted.session_id)
    assert [call.status for call in await calls_of(client, again)] == ["success"] * 4
    _, (elsewhere,) = await asked(client, ADD)
    assert elsewhere.session_id != accepted.session_id


async def open_ids(client: Client, session_id: str = "") -> list[str]:
    """Returns the ids of the open requests."""
    listed = await client.permissions.ListPermissions(session_id=session_id)
    return [request.id for request in listed.permissions]


async def test_call_that_cannot_run_asks_nobody(client: Client) -> None:
    """Wrong arguments go back to the model at once."""
    accepted = await talk(client, '/tool test.add {"a": "two"}')
    assert [call.status for call in await calls_of(client, accepted)] == ["error"]
    assert await open_ids(client) == []


async def test_abort_ends_open_requests(client: Client) -> None:
    """They are told as cancelled before the turn's end, and can no longer be answered."""
    accepted, (request,) = await asked(client, ADD)
    await client.messages.AbortSession(session_id=accepted.session_id)
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        ended = await watch.until_turn_ended(accepted.turn_id)
    assert ended.turn_ended.turn.finish_reason == FINISH_REASON_ABORTED
    (replied,) = [e.permission_replied for e in watch.events if e.HasField("permission_replied")]
    assert (replied.permission_id, replied.response) == (request.id, PERMISSION_REPLY_CANCELLED)
    assert await open_ids(client, accepted.session_id) == []
    refusal = await refused(client.permissions.RespondToPermission(response(request, "once")))
    assert refusal.reason == "PERMISSION_ALREADY_ANSWERED"
    assert words_of(await answer_to(client, await talk(client, "still there?", accepted.session_id))) == "still there?"


async def test_new_watchers_see_open_requests(client: Client) -> None:
    """In a watch of the session, of all, and in the simple stream; an answered one is not shown."""
    accepted, (first, second) = await asked(client, f"{ADD}\n{ADD}", 2)
    await client.permissions.RespondToPermission(response(first, "reject"))
    for session_id in (accepted.session_id, ""):
        async with watching(client, session_id) as watch:
            await watch.until_kind("caught_up")
        assert [e.permission_snapshot.permission.id for e in watch.events if e.HasField("permission_snapshot")] == [
            second.id
        ]
    call = client.events.SubscribeGlobalEvents()
    created = GlobalEvent()
    while not created.HasField("permission_created"):
        created = await call.read()
    assert created.permission_created.permission == second
    call.cancel()


@pytest.mark.slow
async def test_a_large_page_is_divided(client: Client) -> None:
    """Pages never exceed the size that clients take, however large the arguments of wild calls are."""
    arguments = '{"text": "' + "\U0001f600" * 16_000 + '"}'
    words, opened = "\n".join([f"/tool look {arguments}"] * 24), list[str]()
    for _ in range(3):
        _, requests = await asked(client, words, 24, tools=[tool("look")])
        opened += [request.id for request in requests]
    listed, token = list[str](), ""
    while True:
        page = await client.permissions.ListPermissions(page_token=token)
        assert page.ByteSize() < 4 * 2**20
        listed += [request.id for request in page.permissions]
        if not (token := page.next_page_token):
            break
    assert listed == opened


@pytest.mark.parametrize(
    "fields", [{"session_id": ""}, {"permission_id": ""}, {"response": "yes"}, {"reason": "x" * 5000}]
)
async def test_bad_answers_name_the_field(client: Client, fields: dict[str, str]) -> None:
    """Nothing is answered."""
    good = {"session_id": "ses_1", "permission_id": "per_1", "response": "once"}
    refusal = await refused(client.permissions.RespondToPermission(PermissionResponse(**(good | fields))))
    assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, list(fields))
