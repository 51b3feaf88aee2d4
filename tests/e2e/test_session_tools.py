"""Client tools that are kept on the session, and results with JSON and files."""

import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from opencode.file.file_pb2 import DownloadFileRequest
from opencode.message.message_pb2 import SendMessageResponse
from opencode.tool.tool_pb2 import SubmitToolResultRequest, ToolCallState, ToolResultFile
from tests.support.clients.conversation import (
    ask,
    change_of,
    displayed,
    model,
    new_session,
    refused,
    tool,
    turn_ended,
    watching,
)
from tests.support.models.scripts import Call, Say, answer
from tests.support.servers.provider import ProviderServer
from tests.support.servers.running import Client, connect, running_server

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PNG_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
LOOK = "/tool look {}"


async def pending(
    client: Client, words: str, session_id: str, **fields: object
) -> tuple[SendMessageResponse, ToolCallState]:
    """Sends a message and returns its call once it waits."""
    accepted = await client.messages.SendMessage(ask(words, session_id, **fields))
    async with watching(client, session_id, after_sequence=accepted.sequence) as watch:
        event = await watch.until_kind("tool_call_updated")
    return accepted, event.tool_call_updated.state


def result(accepted: SendMessageResponse, call: ToolCallState, **fields: object) -> SubmitToolResultRequest:
    """Returns a result."""
    return SubmitToolResultRequest(session_id=accepted.session_id, tool_call_id=call.id, **fields)


async def test_session_tools_are_there_in_every_turn(client: Client) -> None:
    """A turn keeps those that it was accepted with; once they are removed, the model has none."""
    session_id = await new_session(client, tools=[tool("look")])
    for _ in range(2):
        accepted, call = await pending(client, LOOK, session_id)
        assert (call.name, call.status) == ("look", "pending")
        await client.sessions.UpdateSession(change_of(session_id, tools=None))
        await client.tools.SubmitToolResult(result(accepted, call, output="a cat"))
        await turn_ended(client, accepted)
        await client.sessions.UpdateSession(change_of(session_id, tools=[tool("look")]))
    await client.sessions.UpdateSession(change_of(session_id, tools=None))
    await turn_ended(client, await client.messages.SendMessage(ask(LOOK, session_id)))
    call = [call for message in await displayed(client, session_id) for call in message.tool_calls][-1]
    assert (call.status, call.error) == ("error", "there is no tool named 'look'")


async def test_tool_of_the_message_wins(client: Client) -> None:
    """Its schema counts where two have one name. Together they are no more than 128."""
    session_id = await new_session(client, tools=[tool("look"), tool("hear")])
    schema = '{"type": "object", "required": ["at"]}'
    accepted = await client.messages.SendMessage(ask(f"{LOOK}\n/step\nEnd.", session_id, tools=[tool("look", schema)]))
    await turn_ended(client, accepted)
    (call,) = [call for message in await displayed(client, session_id) for call in message.tool_calls]
    assert call.status == "error"
    refusal = await refused(
        client.messages.SendMessage(ask("hi", session_id, tools=[tool(f"t{number}") for number in range(127)]))
    )
    assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["tools"])


async def test_session_tools_have_a_size(client: Client) -> None:
    """They ride in every description of the session."""
    tools = [tool(f"t{number}") for number in range(5)]
    for declared in tools:
        declared.description = "x" * 60_000
    refusal = await refused(new_session(client, tools=tools))
    assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["settings.tools"])


async def test_bad_file_stores_nothing(client: Client) -> None:
    """Neither url nor path, broken base64, a file of the server, no such upload: told, and the call stays open."""
    session_id = await new_session(client, tools=[tool("look")])
    accepted, call = await pending(client, LOOK, session_id)
    for file, field in (
        (ToolResultFile(mime="image/png"), "files[0].url"),
        (ToolResultFile(url="data:image/png;base64,###"), "files[0].url"),
        (ToolResultFile(path="/etc/passwd"), "files[0].path"),
    ):
        refusal = await refused(client.tools.SubmitToolResult(result(accepted, call, output="x", files=[file])))
        assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, [field])
    unknown = result(accepted, call, output="x", files=[ToolResultFile(upload_id="upl_1")])
    refusal = await refused(client.tools.SubmitToolResult(unknown))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "UPLOAD_NOT_FOUND")
    shown = [call for message in await displayed(client, session_id) for call in message.tool_calls]
    assert [state.status for state in shown] == ["pending"]


@pytest.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    """A model."""
    async with ProviderServer() as running:
        yield running


@pytest.mark.matrix
@pytest.mark.parametrize("api", ["anthropic", "openai_responses", "openai_chat"])
async def test_picture_of_a_result_reaches_the_model(api: str, provider: ProviderServer, tmp_path: Path) -> None:
    """It is shown with the call, can be downloaded, and stands in the next request; a retry is confirmed."""
    toml = f"[providers.mine]\nkind = '{api}'\nbase_url = '{provider.base_url}'\n"
    provider.enqueue(answer(api, Call("look")))
    provider.enqueue(answer(api, Say("A dot.")))
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        session_id = await new_session(client, tools=[tool("look")])
        accepted, call = await pending(client, "look", session_id, model=model("m", "mine"))
        files = [ToolResultFile(url=PNG_URL, filename="dot.png")]
        for _ in range(2):
            settled = await client.tools.SubmitToolResult(result(accepted, call, output="see", files=files))
        (file,) = settled.tool_call.files
        assert (file.sha256, file.mime, file.filename) == (hashlib.sha256(PNG).hexdigest(), "image/png", "dot.png")
        await turn_ended(client, accepted)
        request = DownloadFileRequest(session_id=session_id, sha256=file.sha256)
        assert b"".join([piece.data async for piece in client.files.DownloadFile(request)]) == PNG
    assert base64.b64encode(PNG).decode() in str(provider.requests[-1].body)
