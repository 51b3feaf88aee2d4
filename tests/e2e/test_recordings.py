"""Recorded streams through the whole server: HTTP, SDK, turn, SQLite and gRPC give what an independent reader found."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from opencode.event import event_pb2
from opencode.message import content_pb2, message_pb2
from opencode.model.selection_pb2 import ModelSelection
from opencode.provider.provider_pb2 import ProviderInfo
from opencode.tool.tool_pb2 import ToolDefinition
from tests.support.models.recordings import KINDS, Recording, cut_anywhere, recording_params, unexplained_differences
from tests.support.servers.provider import ProviderServer, ScriptedReply
from tests.support.servers.running import Client, connect, running_server

pytestmark = pytest.mark.recordings

KEY = "hunter2-hunter2"


@pytest_asyncio.fixture(scope="module")
async def provider() -> AsyncIterator[ProviderServer]:
    """A local provider of all three APIs."""
    async with ProviderServer() as running:
        yield running


@pytest_asyncio.fixture(scope="module")
async def client(provider: ProviderServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of one server for all recordings, with a provider of each kind."""
    tables = [
        f'[providers.{kind}]\nkind = "{kind}"\nbase_url = "{provider.base_url}"\napi_key_env = "PROVIDER_KEY"\n'
        for kind in KINDS.values()
    ]
    folder = tmp_path_factory.mktemp("recordings")
    async with (
        running_server(folder, "".join(tables), {"PROVIDER_KEY": KEY}) as server,
        connect(server.address) as connected,
    ):
        yield connected


class Endings:
    """The end of each assistant message, as the simple event stream tells it."""

    def __init__(self) -> None:
        """Starts empty."""
        self._arrived: dict[str, asyncio.Future[event_pb2.MessageUpdated]] = {}

    async def collect(self, stream: AsyncIterator[event_pb2.GlobalEvent]) -> None:
        """Notes endings until the stream ends."""
        async for event in stream:
            updated = event.message_updated
            if updated.role == "assistant" and updated.HasField("finish"):
                ending = self._of(updated.session_id)
                if not ending.done():
                    ending.set_result(updated)

    async def first(self, session_id: str) -> event_pb2.MessageUpdated:
        """Returns the end of the session's first answer, once it came."""
        return await self._of(session_id)

    def _of(self, session_id: str) -> asyncio.Future[event_pb2.MessageUpdated]:
        return self._arrived.setdefault(session_id, asyncio.get_running_loop().create_future())


@pytest_asyncio.fixture(scope="module")
async def endings(client: Client) -> AsyncIterator[Endings]:
    """A subscription to all sessions."""
    collected = Endings()
    stream = client.events.SubscribeGlobalEvents(event_pb2.SubscribeGlobalEventsRequest())
    await stream.initial_metadata()
    collecting = asyncio.create_task(collected.collect(stream))
    yield collected
    stream.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await collecting


@pytest.mark.parametrize("recording", recording_params())
async def test_recording_comes_out_as_expected(
    recording: Recording, provider: ProviderServer, client: Client, endings: Endings
) -> None:
    """The stored answer of a recording is that of the index, and its status and end tell whether it broke."""
    provider.enqueue(ScriptedReply(tuple(cut_anywhere(recording.body, recording.name))))
    sent = await client.messages.SendMessage(
        message_pb2.SendMessageRequest(
            parts=[message_pb2.MessagePart(text=message_pb2.TextPart(text="go"))],
            model=ModelSelection(provider=ProviderInfo(id=recording.kind), model_id="any"),
            # declared, so that the turn waits for the client and not for another answer
            tools=[ToolDefinition(name=name) for name in sorted({c["name"] for c in recording.expected["tool_calls"]})],
        )
    )
    ending = await endings.first(sent.session_id)
    await client.messages.AbortSession(message_pb2.AbortSessionRequest(session_id=sent.session_id))
    listed = await client.messages.GetMessages(message_pb2.GetMessagesRequest(session_id=sent.session_id))
    question, answer = listed.messages[:2]

    assert (question.role, answer.role) == ("user", "assistant")
    assert KEY in str(provider.requests[-1].headers)
    assert unexplained_differences(recording, comparable(answer)) == {}
    broken = recording.expected["error"] is not None or recording.expected["truncated"]
    assert ending.message_id == answer.message_id
    assert ending.finish == ("error" if broken else "stop")
    assert [ending.tokens.input, ending.tokens.output, ending.tokens.reasoning] == [
        answer.tokens_input, answer.tokens_output, answer.tokens_reasoning
    ]  # fmt: skip
    assert answer.failure.reason if broken else not answer.HasField("failure")


def comparable(answer: message_pb2.DisplayMessage) -> dict[str, Any]:
    """Returns a message in the form of `Answer.comparable`."""
    return {
        "text": "".join(answer.text_parts),
        "reasoning": "".join(answer.reasoning_parts),
        "tool_calls": [
            {"id": call.call_id, "name": call.name, "arguments": call.input_json or "{}"} for call in answer.tool_calls
        ],
        "input_tokens": _known(answer, "tokens_input"),
        "output_tokens": _known(answer, "tokens_output"),
        "reasoning_tokens": _known(answer, "tokens_reasoning"),
        "cache_read_tokens": _known(answer.usage, "cache_read_tokens"),
        "cache_write_tokens": _known(answer.usage, "cache_write_tokens"),
        "finish": answer.provider_finish_reason or None,
        "model": answer.model_run.model_served,
        "error": answer.status == content_pb2.MESSAGE_STATUS_FAILED,
        "truncated": answer.status == content_pb2.MESSAGE_STATUS_INTERRUPTED,
    }


def _known(counts: message_pb2.DisplayMessage | content_pb2.TokenUsage, name: str) -> int | None:
    return getattr(counts, name) if counts.HasField(name) else None  # type: ignore[arg-type]
