"""What stands between a transport and the SDK's session: counts what a server wants, and cuts what it says of itself.

The SDK starts a task for each request and each notification, and keeps what it was told of tools. Schemas of results
are left out: the SDK would check results with a validator in Python, whose regular expressions a server could choose.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from types import TracebackType
from typing import Any, Self

from turnwire.tools.mcp.results import MAX_BLOCKS
from turnwire.tools.mcp.tool_list import MAX_TOOLS

MAX_ASKED = 1_024
"""Requests of a server that are not answered yet. One that never reads the answers would fill the memory."""

MAX_PARAMS_CHARS = 64 * 1024
"""Text of one request or notification; questions and progress have far less. The SDK keeps it until it is answered."""

_CHANGED = "notifications/tools/list_changed"

_UNWANTED = ("notifications/message", "notifications/resources/", "notifications/prompts/", "notifications/roots/")
"""Begins of the names of notifications that nobody here waits for."""


@contextlib.asynccontextmanager
async def guarded(
    transport: AbstractAsyncContextManager[tuple[Any, Any]], lost: Callable[[str], None], changed: Callable[[], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """Yields the streams of a transport of the SDK, from the server and to it.

    Args:
        transport: The transport.
        lost: Called with the reason when the server has gone too far; nothing is read of it after that.
        changed: Called each time the server says that its list of tools has changed. The session is not told.
    """
    async with transport as (from_server, to_server):
        asked: set[Any] = set()
        yield _Reader(from_server, asked, lost, changed), _Writer(to_server, asked)


class _Stream:
    """What both directions pass on."""

    def __init__(self, inner: Any, asked: set[Any]) -> None:
        self._inner = inner
        self._asked = asked

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.aclose()


class _Writer(_Stream):
    """To the server. `_asked` has the ids of its requests that wait for an answer."""

    async def send(self, item: Any) -> None:
        await self._inner.send(item)
        if not hasattr(item.message, "method"):
            self._asked.discard(item.message.id)


class _Reader(_Stream):
    """From the server."""

    def __init__(self, inner: Any, asked: set[Any], lost: Callable[[str], None], changed: Callable[[], None]) -> None:
        super().__init__(inner, asked)
        self._lost = lost
        self._changed = changed

    @property
    def last_context(self) -> Context | None:
        """The context of the call in whose stream the last message came."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        import anyio  # noqa: PLC0415 - comes with the SDK

        while True:
            item = await self._inner.receive()
            message = getattr(item, "message", None)
            if message is None or self._is_welcome(message):
                return item
            if len(self._asked) >= MAX_ASKED:
                self._lost(f"it did not read the answers to {MAX_ASKED} requests")
                raise anyio.EndOfStream

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        import anyio  # noqa: PLC0415 - comes with the SDK

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    def _is_welcome(self, message: Any) -> bool:
        """Returns whether the session gets a message; cuts what is in it."""
        if not hasattr(message, "method"):
            result = getattr(message, "result", None)
            _cut_tools(result)
            _cut_parts(result)
            return True
        if message.method == _CHANGED:
            self._changed()
            return False
        if message.method.startswith(_UNWANTED):
            return False
        is_short = _is_short(message.params)
        if not hasattr(message, "id"):
            if message.method == "notifications/cancelled" and is_short:
                self._forget((message.params or {}).get("requestId"))
            return is_short
        if message.id in self._asked or len(self._asked) >= MAX_ASKED:
            return False  # an id that waits already is an error of the server, which it would count twice
        if not is_short:
            message.params = None  # so that the session refuses it
        self._asked.add(message.id)
        return True

    def _forget(self, request_id: object) -> None:
        if isinstance(request_id, int | str):
            self._asked.discard(request_id)


def _cut_tools(result: Any) -> None:
    """Drops the schemas of results, and tools beyond the limit: all but one, by which the list notices them."""
    tools = result.get("tools") if isinstance(result, dict) else None
    if isinstance(tools, list):
        del tools[MAX_TOOLS + 1 :]
        for tool in tools:
            if isinstance(tool, dict):
                tool.pop("outputSchema", None)


def _cut_parts(result: Any) -> None:
    """Puts a line in place of the parts of a result beyond the limit: the SDK would make objects of all of them."""
    parts = result.get("content") if isinstance(result, dict) else None
    if isinstance(parts, list) and len(parts) > MAX_BLOCKS:
        left_out = len(parts) - MAX_BLOCKS
        parts[MAX_BLOCKS:] = [{"type": "text", "text": f"[{left_out} further parts of the result are left out]"}]


def _is_short(value: Any) -> bool:
    """Returns whether the texts in a JSON value are together no longer than `MAX_PARAMS_CHARS`, and its values few."""
    left, waiting = MAX_PARAMS_CHARS, [value]
    while waiting:
        one = waiting.pop()
        left -= 1
        if isinstance(one, str):
            left -= len(one)
        elif isinstance(one, dict):
            left -= sum(map(len, one))
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
        if left < len(waiting):
            return False
    return True
