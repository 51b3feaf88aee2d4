"""A whole server behind its gate, without a listener: what a call does when its bytes have arrived."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf.message import Message
from google.rpc import code_pb2
from structlog.testing import capture_logs

from opencode.session.session_pb2 import CreateSessionRequest
from tests.support.clients.conversation import ask, tool
from tests.support.fakes.identity import FakeCaller, sent
from tests.support.fuzzing.targets.running import at_end
from turnwire.api.admission.requests import CallerGone
from turnwire.api.gate import CallFailed, Gate, StreamingMethod, UnaryMethod
from turnwire.api.registry import Service
from turnwire.api.web.encoding.codecs import Route, routes_of
from turnwire.app import Server
from turnwire.config import load_config

CALLER = FakeCaller()

RUNS = 2_000
"""After so many runs the server is made anew: it has stored much by then."""


class _Outlet:
    """A caller that is gone when a stream has begun, which may go on for ever."""

    async def open(self) -> None:
        """Is gone."""
        raise CallerGone

    async def send(self, _answer: Message | bytes) -> None:
        """Is gone."""
        raise CallerGone


class _Gated(Server):
    """Starts everything but the listeners."""

    gate: Gate
    services: Sequence[Service]

    async def _listen(self, listeners: Any, services: Sequence[Service], gate: Gate, stack: AsyncExitStack) -> None:
        self.services, self.gate = services, gate


class Gated:
    """The server and what it knows."""

    def __init__(self, server: _Gated) -> None:
        self._gate = server.gate
        self.routes: Mapping[str, Route] = routes_of(server.services)
        self.paths = sorted(path for path in self.routes if "GlobalEvents" not in path)
        self.ids: dict[str, str] = {}
        """Ids of what is there, by the names of fields."""

    async def settle_in(self) -> None:
        """Makes a session that waits for the result of a tool."""
        session = await self.answer("session.SessionService/CreateSession", CreateSessionRequest(title="a"))
        words = "Look.\n/tool look {}\n/step\nSeen."
        request = ask(words, session.id, tools=[tool("look")], request_id="one")
        accepted = await self.answer("message.MessageService/SendMessage", request)
        self.ids = {"session_id": session.id, "message_id": accepted.message_id, "turn_id": accepted.turn_id}
        self.ids["resume_token"] = accepted.resume_token

    async def answer(self, path: str, request: Message) -> Any:
        """Returns the answer of a method that has one."""
        route = self.routes[f"/opencode.{path}"]
        assert isinstance(route.proto, UnaryMethod)
        found = await self._gate.unary(route.proto, sent(request.SerializeToString()), CALLER)
        return route.answer_type.FromString(found) if isinstance(found, bytes) else found

    async def call(self, path: str, codec: Any, data: bytes) -> None:
        """Makes a call with ids of what is there. It must be answered or refused.

        Raises:
            AssertionError: it failed inside.
        """
        method = self.routes[path].method(codec)
        given = self.ids if "/Delete" not in path else {}

        def parse(data: bytes) -> Any:
            return _with_ids(method.parse(data), given)

        filled = method._replace(parse=parse, offload_bytes=None)
        with capture_logs() as logs:
            try:
                if isinstance(filled, StreamingMethod):
                    await self._gate.stream(filled, sent(data), CALLER, _Outlet())
                else:
                    await self._gate.unary(filled, sent(data), CALLER)
            except CallFailed as failed:
                wrong = failed.status.code in (code_pb2.INTERNAL, code_pb2.UNKNOWN)
                assert not wrong, [line.get("exc_info", line) for line in logs]
            except CallerGone:
                pass
            await asyncio.sleep(0)


def _with_ids(request: Message, ids: Mapping[str, str]) -> Message:
    """Returns the request with ids of what is there, where it names anything that begins with a letter before n."""
    for field, value in request.ListFields():
        if field.name in ids and isinstance(value, str) and value[:1] < "n":
            setattr(request, field.name, ids[field.name])
        elif isinstance(value, Message):
            _with_ids(value, ids)
    return request


@asynccontextmanager
async def gated() -> AsyncIterator[Gated]:
    """Runs a server with a database in a folder of its own."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "turnwire.toml"
        file.write_text("[log]\nstuck_loop_seconds = 0\n")
        options = {"--listen": f"unix:{folder}/socket", "--db": f"{folder}/turnwire.db"}
        async with _Gated(load_config(file, {}, options), {}) as server:
            made = Gated(server)
            with capture_logs():
                await made.settle_in()
            yield made


class Kept:
    """The server of all runs, made anew now and then."""

    def __init__(self) -> None:
        self._runs = 0
        self._stack = AsyncExitStack()
        self._gated: Gated | None = None

    async def get(self) -> Gated:
        """Returns the server."""
        self._runs += 1
        if self._gated is not None and self._runs % RUNS == 0:
            await self.aclose()
        if self._gated is None:
            at_end(self.aclose)
            self._gated = await self._stack.enter_async_context(gated())
        return self._gated

    async def aclose(self) -> None:
        """Stops it. Idempotent."""
        await self._stack.aclose()
        self._gated = None


KEPT = Kept()
