"""Files that tools make, and outputs that are too long for a model: what models get, and what clients can read."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from opencode.file.file_pb2 import DownloadFileRequest
from opencode.tool.tool_pb2 import ToolCallState
from tests.support.clients.conversation import ask, displayed, model, new_session, refused, streamed, talk
from tests.support.models.scripts import Call, Say, answer
from tests.support.rules import check_anthropic
from tests.support.servers.mcp import mcp_client, stdio
from tests.support.servers.mcp_program import PICTURE
from tests.support.servers.provider import ProviderServer
from tests.support.servers.running import Client
from turnwire.providers.request.wire_names import wire_name

pytestmark = pytest.mark.slow

LIMIT = 1000
LIMITS = f"[limits]\nmax_tool_output_bytes = {LIMIT}\n"


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server whose limit is reached early."""
    folder = tmp_path_factory.mktemp("tools")
    async with mcp_client(folder, stdio(folder) + LIMITS) as connected:
        yield connected


async def call_of(client: Client, session_id: str) -> ToolCallState:
    """Returns the only tool call of a session."""
    (call,) = [call for message in await displayed(client, session_id) for call in message.tool_calls]
    return call


async def downloaded(client: Client, session_id: str, sha256: str) -> list[Any]:
    """Returns the answers of DownloadFile."""
    return [part async for part in client.files.DownloadFile(session_id=session_id, sha256=sha256)]


def blocks_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the blocks of the last message of a request, those inside tool results included."""
    found = []
    for block in body["messages"][-1]["content"]:
        inside = block.get("content") if block["type"] == "tool_result" else None
        found += [block, *(inside if isinstance(inside, list) else [])]
    return found


async def test_a_picture_of_a_tool_reaches_the_model(tmp_path: Path) -> None:
    """As an image block of the very next request; clients get the bytes too."""
    async with ProviderServer() as provider:
        toml = f"{stdio(tmp_path)}\n[providers.mine]\nkind = 'anthropic'\nbase_url = '{provider.base_url}'\n"
        async with mcp_client(tmp_path, toml) as client:
            session_id = await new_session(client)
            provider.enqueue(answer("anthropic", Call(wire_name("test.picture"))))
            provider.enqueue(answer("anthropic", Say("It is red.")))
            turn = streamed(client, ask("draw", session_id, model=model("claude-x", "mine")))
            assert [event async for batch in turn for event in batch.events][-1].turn_ended.turn.steps == 2
            call = await call_of(client, session_id)
            (file,) = call.files
            (part,) = await downloaded(client, session_id, file.sha256)
    first, second = (request.body for request in provider.requests)
    images = [block["source"] for block in blocks_of(second) if block["type"] == "image"]
    assert images == [{"type": "base64", "media_type": "image/png", "data": base64.b64encode(PICTURE).decode()}]
    assert (check_anthropic(first), check_anthropic(second)) == ([], [])
    assert (call.name, call.status, call.output.splitlines()) == (
        "test.picture",
        "success",
        ["a red square", f"[file 1: image/png, {len(PICTURE)} bytes]"],
    )
    assert (file.mime, file.size_bytes, part.data, part.size_bytes) == (
        "image/png",
        len(PICTURE),
        PICTURE,
        len(PICTURE),
    )


async def test_long_output_is_cut_for_the_model_and_kept_for_people(client: Client) -> None:
    """The call holds its beginning, with a note; DownloadFile gives all of it, in pieces, to this session alone."""
    whole = "\n".join(f"line {number} of 20000" for number in range(1, 20_001)).encode()
    accepted = await talk(client, '/tool test.story {"lines": 20000}')
    call = await call_of(client, accepted.session_id)
    kept, _, note = call.output.rpartition("\n")
    assert kept.encode() == whole[:LIMIT]
    assert note == f"[cut: the output has {len(whole)} bytes, these are the first {LIMIT}]"
    assert (call.full_output.mime, call.full_output.size_bytes) == ("text/plain", len(whole))
    parts = await downloaded(client, accepted.session_id, call.full_output.sha256)
    assert b"".join(part.data for part in parts) == whole
    assert max(len(part.data) for part in parts) <= 64 * 1024
    assert [part.size_bytes for part in parts if part.HasField("size_bytes")] == [len(whole)]
    request = DownloadFileRequest(session_id=await new_session(client), sha256=call.full_output.sha256)
    refusal = await refused(client.files.DownloadFile(request).read())
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "FILE_NOT_FOUND")


@pytest.mark.parametrize("lines", [1, 40])
async def test_short_output_has_no_file(client: Client, lines: int) -> None:
    """An output that fits is in the call, whole."""
    accepted = await talk(client, f'/tool test.story {{"lines": {lines}}}')
    call = await call_of(client, accepted.session_id)
    assert call.output.splitlines() == [f"line {number} of {lines}" for number in range(1, lines + 1)]
    assert (call.HasField("full_output"), len(call.files)) == (False, 0)
