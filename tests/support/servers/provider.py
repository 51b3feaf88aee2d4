"""A local HTTP server that speaks the providers' wire formats: it replays scripts and records what it was asked.

It knows nothing of the APIs but their paths, so a test decides every byte that a provider sends.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")


@dataclass(frozen=True)
class ScriptedReply:
    """One HTTP answer."""

    chunks: Sequence[bytes | asyncio.Event] = ()
    """Written one by one; at an event the server waits until the test sets it."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    wait: asyncio.Event | None = None
    """Set before the answer begins."""
    cut: bool = False
    """True to close the connection after the last chunk, without the end of the body."""


@dataclass
class RecordedRequest:
    """One request that came."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client left before the answer was complete."""


class ProviderServer:
    """Answers each request with the next enqueued reply, else with what `reply_to` makes, else with 500."""

    def __init__(self, reply_to: Callable[[RecordedRequest], ScriptedReply] | None = None) -> None:
        """Starts nothing; enter the context to listen.

        Args:
            reply_to: Makes the reply for a request when none is enqueued.
        """
        self._reply_to = reply_to
        self.requests: list[RecordedRequest] = []
        self._replies: deque[ScriptedReply] = deque()
        self._runner: web.AppRunner | None = None
        self._address = ""

    @property
    def base_url(self) -> str:
        """Address for `ProviderSettings.base_url`."""
        return f"{self._address}/v1"

    def enqueue(self, reply: ScriptedReply) -> None:
        """Adds a reply behind the waiting ones."""
        self._replies.append(reply)

    async def __aenter__(self) -> Self:
        """Listens on a free port."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        for path in PATHS:
            app.router.add_post(path, self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self._address = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stops listening and closes all connections."""
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        recorded = RecordedRequest(request.path, dict(request.headers), body)
        self.requests.append(recorded)
        reply = ScriptedReply((b"no reply enqueued",), 500)
        if self._replies:
            reply = self._replies.popleft()
        elif self._reply_to is not None:
            reply = self._reply_to(recorded)
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        try:
            if reply.wait is not None:
                await reply.wait.wait()
            await response.prepare(request)
            for chunk in reply.chunks:
                if isinstance(chunk, asyncio.Event):
                    await chunk.wait()
                else:
                    await response.write(chunk)
            if reply.cut:
                assert request.transport is not None
                request.transport.close()
            else:
                await response.write_eof()
        except (asyncio.CancelledError, ConnectionError):
            recorded.disconnected.set()
            raise
        return response
