"""What the SDK's session gets of an MCP server."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from turnwire.tools.mcp.wire import guard
from turnwire.tools.mcp.wire.guard import MAX_PARAMS_CHARS, guarded


class Wire:
    """A transport whose server says what a test wants."""

    def __init__(self) -> None:
        """Nothing is said yet."""
        self.say, self._heard = anyio.create_memory_object_stream[Any](100)
        self._write, self.written = anyio.create_memory_object_stream[Any](100)
        self.lost: list[str] = []
        self.changes = 0

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[tuple[Any, Any]]:
        """Yields the streams that the session gets."""

        @contextlib.asynccontextmanager
        async def transport() -> AsyncIterator[tuple[Any, Any]]:
            yield self._heard, self._write

        async with (
            self.say,
            self._heard,
            self._write,
            self.written,
            guarded(transport(), self.lost.append, self._note_change) as streams,
        ):
            yield streams

    def _note_change(self) -> None:
        self.changes += 1

    async def asks(self, number: int | str, **params: Any) -> None:
        """Has the server ask something."""
        await self.say.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=number, method="ping", params=params)))

    async def tells(self, method: str, **params: Any) -> None:
        """Has the server tell something."""
        await self.say.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method, params=params)))


def _answer(number: int | str, **result: Any) -> SessionMessage:
    return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=number, result=result))


async def test_requests_without_answers_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers and cancellations make room; one too many ends the connection."""
    monkeypatch.setattr(guard, "MAX_ASKED", 3)
    wire = Wire()
    async with wire.session() as (reader, writer):
        for number in range(3):
            await wire.asks(number)
            await reader.receive()
        await writer.send(_answer(0))
        await wire.tells("notifications/cancelled", requestId=1)
        await reader.receive()
        for number in ("a", "b", "c"):
            await wire.asks(number)
        assert [(await reader.receive()).message.id for _ in range(2)] == ["a", "b"]
        assert wire.lost == []
        with pytest.raises(anyio.EndOfStream):
            await reader.receive()
    assert wire.lost == ["it did not read the answers to 3 requests"]


async def test_an_id_that_waits_is_not_taken_again() -> None:
    """It would count once and cost twice."""
    wire = Wire()
    async with wire.session() as (reader, _):
        for number in (1, 1, 2):
            await wire.asks(number)
        assert [(await reader.receive()).message.id for _ in range(2)] == [1, 2]


async def test_the_session_gets_few_notices() -> None:
    """Changes of the list are told at once, and what nobody waits for is dropped."""
    wire = Wire()
    async with wire.session() as (reader, _):
        for name in ("tools/list_changed", "message", "prompts/list_changed", "tools/list_changed", "progress"):
            await wire.tells(f"notifications/{name}")
        assert (await reader.receive()).message.method == "notifications/progress"
    assert wire.changes == 2


async def test_long_requests_lose_their_content_and_long_notices_are_dropped() -> None:
    """The session refuses such a request, so that its server hears of it."""
    wire = Wire()
    async with wire.session() as (reader, _):
        await wire.tells("notifications/message", data=["x" * MAX_PARAMS_CHARS])
        await wire.asks(1, **{"x" * MAX_PARAMS_CHARS: 1})
        await wire.asks(2, many=[[]] * MAX_PARAMS_CHARS)
        await wire.asks(3, text="x" * (MAX_PARAMS_CHARS - 100))
        found = [(await reader.receive()).message for _ in range(3)]
    assert [(message.id, message.params is None) for message in found] == [(1, True), (2, True), (3, False)]


async def test_results_are_cut_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools and parts over the limits, and the schemas of results."""
    monkeypatch.setattr(guard, "MAX_TOOLS", 1)
    monkeypatch.setattr(guard, "MAX_BLOCKS", 2)
    wire = Wire()
    async with wire.session() as (reader, _):
        await wire.say.send(_answer(1, tools=[{"name": str(n), "outputSchema": {}} for n in range(3)]))
        await wire.say.send(_answer(2, content=[{"type": "text", "text": str(n)} for n in range(5)]))
        tools, parts = [(await reader.receive()).message.result for _ in range(2)]
    assert tools == {"tools": [{"name": "0"}, {"name": "1"}]}
    assert [part["text"] for part in parts["content"]] == ["0", "1", "[3 further parts of the result are left out]"]
