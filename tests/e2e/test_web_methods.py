"""Every method of the contract over Connect: by protobuf and by JSON it answers what it answers over gRPC."""

import base64
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import code_pb2, status_pb2
from grpc_status import rpc_status

from tests.support.clients.belongings import Belongings
from tests.support.clients.conversation import ask, new_session, turn_ended
from tests.support.clients.every_method import METHODS, REQUESTS, sample
from tests.support.clients.web import Answer, WebClient, web_client
from tests.support.servers.running import Client, connect, running_server

Outcome = Message | tuple[str, str, list[tuple[str, bytes]]] | None
"""The first answer; None of a stream that ends without one; or the code, message and details of an error."""

CODECS = ("proto", "json")

TELLS_CHANGES = "event.EventService.SubscribeGlobalEvents"
"""A stream that has nothing to say until something changes, which is another change each time."""


class Both(NamedTuple):
    """Clients of both listeners of one server, and what a tenant has there."""

    grpc: Client
    web: WebClient
    mine: Belongings


@pytest.fixture(scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Both]:
    """A server with a conversation; what the conversation does not have is named and not there.

    A page of a search is never short because the machine is slow.
    """
    with patch("turnwire.storage.sql.searching.SHOWING_SECONDS", 600):
        async with served(tmp_path_factory) as one:
            yield one


@contextlib.asynccontextmanager
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Both]:
    """Serves a conversation at both listeners."""
    async with (
        running_server(tmp_path_factory.mktemp("methods"), '[web]\nlisten = "127.0.0.1:0"\n') as server,
        connect(server.address) as client,
        web_client(server.web_address, headers={"accept-encoding": "identity"}) as web,
    ):
        session_id = await new_session(client, title="Plans")
        ended = await client.messages.SendMessage(ask("the words of alice", session_id))
        await turn_ended(client, ended)
        mine = replace(
            sample("nobody"), session_id=session_id, message_id=ended.message_id, turn_id=ended.turn_id, name="Plans"
        )
        yield Both(client, web, mine)


@pytest.mark.parametrize("name", METHODS)
async def test_answers_what_grpc_answers(both: Both, name: str) -> None:
    """Reads of what is there, and all methods with ids that are not there: the same answer or the same error."""
    method = METHODS[name]
    only_reads = method.GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS
    for make in REQUESTS[name]:
        request = make(both.mine if only_reads else sample("nobody"))
        expected = await _over_grpc(both, method, request)
        for codec in CODECS:
            found = await _over_web(both, method, request, codec)
            if name != TELLS_CHANGES and (only_reads or not isinstance(expected, Message)):
                assert found == expected, codec
            else:  # it made something new, with an id of its own
                assert type(found) is type(expected), codec


@pytest.mark.matrix
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, method in METHODS.items()
        if method.GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS and not method.server_streaming
    ],
)
async def test_reads_answer_to_get(both: Both, name: str) -> None:
    """A GET with the message in the query answers what a POST does."""
    method = METHODS[name]
    for make in REQUESTS[name]:
        request = make(both.mine)
        message = base64.urlsafe_b64encode(request.SerializeToString()).decode()
        query = f"?connect=v1&encoding=proto&base64=1&message={message}"
        answer = await both.web.send(_path(method) + query, verb="GET")
        assert _one(method, answer, "proto") == await _over_web(both, method, request, "proto")


async def _over_grpc(both: Both, method: MethodDescriptor, request: Message) -> Outcome:
    client, kind = both.grpc, GetMessageClass(method.output_type)
    path = _path(method)
    try:
        if not method.server_streaming:
            call = client.channel.unary_unary(path, type(request).SerializeToString, kind.FromString)
            return _lasting(await call(request))
        stream = client.channel.unary_stream(path, type(request).SerializeToString, kind.FromString)(request)
        if method.full_name.endswith(TELLS_CHANGES):
            await stream.initial_metadata()
            await _change(both)
        async for answer in stream:
            stream.cancel()
            return answer  # type: ignore[no-any-return]
        return None
    except grpc.aio.AioRpcError as failed:
        status = rpc_status.from_call(failed)
        assert status is not None
        return _error(status)


async def _over_web(both: Both, method: MethodDescriptor, request: Message, codec: str) -> Outcome:
    web = both.web
    name = method.full_name.removeprefix("opencode.").rpartition(".")
    short = f"{name[0]}/{name[2]}"
    if not method.server_streaming:
        data = request.SerializeToString() if codec == "proto" else json_format.MessageToJson(request).encode()
        return _one(method, await web.send(_path(method), data, content_type=f"application/{codec}"), codec)
    async with web.stream(short, request, codec=codec) as stream:
        if method.full_name.endswith(TELLS_CHANGES):
            await _change(both)
        async for found in stream:
            if found.flags & 2:
                ending = json.loads(found.data)
                return _web_error(ending["error"]) if ending else None
            return _message(method, found.data, codec)
    return None


async def _change(both: Both) -> None:
    await turn_ended(both.grpc, await both.grpc.messages.SendMessage(ask("more words", both.mine.session_id)))


def _path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def _one(method: MethodDescriptor, answer: Answer, codec: str) -> Outcome:
    return _message(method, answer.body, codec) if answer.status == 200 else _web_error(answer.json())


def _message(method: MethodDescriptor, data: bytes, codec: str) -> Message:
    kind = GetMessageClass(method.output_type)
    return _lasting(kind.FromString(data) if codec == "proto" else json_format.Parse(data, kind()))


def _lasting(answer: Any) -> Message:
    """Returns an answer without what is another each time."""
    if "server_time" in answer.DESCRIPTOR.fields_by_name:
        answer.ClearField("server_time")
    return answer  # type: ignore[no-any-return]


def _error(status: status_pb2.Status) -> Outcome:
    name = code_pb2.Code.Name(status.code).lower()
    return name, status.message, [(detail.TypeName(), detail.value) for detail in status.details]


def _web_error(error: dict[str, Any]) -> Outcome:
    details = [(detail["type"], base64.b64decode(detail["value"] + "===")) for detail in error.get("details", ())]
    return error["code"], error["message"], details
