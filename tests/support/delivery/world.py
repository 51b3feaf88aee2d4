"""A server process, its models and its database: started, stopped, killed, backed up and restored."""

import asyncio
import contextlib
import json
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import grpc

from opencode.message.message_pb2 import ExplainContextRequest
from opencode.session.session_pb2 import SESSION_STATUS_IDLE
from opencode.turn.turn_pb2 import TURN_STATUS_WAITING, TurnSettings
from opencode.turn.turn_service_pb2 import GetTurnRequest
from tests.support.clients.conversation import model_name, session_of
from tests.support.delivery.answers import Answers, refusals
from tests.support.delivery.readers import PATIENCE_SECONDS
from tests.support.oracles.sound import assert_sound
from tests.support.servers.mcp import ENVIRON, asker, ready
from tests.support.servers.process import ServerProcess
from tests.support.servers.provider import ProviderServer
from tests.support.servers.running import Client, connect
from tests.support.servers.world_models import MODELS, configuration

PAUSE_SECONDS = 0.005
"""Between two looks at a state that nobody announces."""

NOTICED_SECONDS = 1
"""After which the end of a process that has ended is known."""

TOLD_LINES = 60
"""Most lines of a server's log in the report of a failure."""


class World:
    """Use `start` and `close`; everything on one event loop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._channels = AsyncExitStack()
        self._server: ServerProcess | None = None
        self._address = "127.0.0.1:0"
        self._toml = ""
        self._environ: dict[str, str] = {}
        self._backups = 0
        self.lives = 0
        """Number of starts of the server."""
        self.answers = Answers()
        self.models = ProviderServer(self.answers.reply)
        self.client: Client
        self.asks_people = False

    async def start(self, *, retained: int, asks_people: bool) -> None:
        """Starts the models and the server.

        Args:
            retained: Events that a session keeps.
            asks_people: Offer a tool of the server that asks a person; its MCP server takes a while to start.
        """
        await self.models.__aenter__()
        self.asks_people = asks_people
        self._toml = configuration(self.models.base_url) + f"[storage]\nretained_events_per_session = {retained}\n"
        if asks_people:
            self._toml += asker()
            self._environ = ENVIRON
        await self.serve()

    async def serve(self) -> None:
        """Starts the server, on the address that it had."""
        self.lives += 1
        self._server = await ServerProcess.start(self._folder, self._toml, self._environ, listen=self._address)
        self._address = self._server.address
        self.client = await self._channels.enter_async_context(connect(self._address))
        if self.asks_people:
            await ready(self.client)

    async def kill(self, asking: Sequence[asyncio.Task[Any]] = ()) -> None:
        """Ends the server with SIGKILL, and returns when these calls have noticed it."""
        assert self._server is not None
        await self._server.kill()
        for one in asking:
            await one
        await self._ended()

    async def stop(self) -> None:
        """Ends the server in order."""
        assert self._server is not None
        code = await asyncio.wait_for(self._server.terminate(), PATIENCE_SECONDS)
        assert code == 0, "\n".join((f"exit code {code}", *self._server.stderr))
        await self._ended()

    async def _ended(self) -> None:
        self.look()
        self._server = None
        await self._channels.aclose()

    def look(self) -> None:
        """Checks what the server wrote, and that it asked the models as their APIs have it."""
        assert not self.answers.refusals, "\n".join(self.answers.refusals)
        if self._server is not None:
            wrong = [line for line in self._server.stderr if "Traceback" in line or '"INTERNAL"' in line]
            assert not wrong, "\n".join(self._server.stderr)

    async def told(self) -> str:
        """Returns whether the server runs, and the last that it wrote: for who wants to know why something failed."""
        if self._server is None:
            return "no server runs"
        try:
            ended = f"ended with code {await asyncio.wait_for(asyncio.shield(self._server.ended()), NOTICED_SECONDS)}"
        except TimeoutError:
            ended = "runs"
        return "\n".join([f"the server {ended}, and wrote:", *self._server.stderr[-TOLD_LINES:]])

    async def close(self) -> None:
        """Stops everything."""
        if self._server is not None:
            with contextlib.suppress(AssertionError):
                await self.kill()
        await self._channels.aclose()
        await self.models.__aexit__()

    async def back_up(self) -> Path:
        """Copies the database while the server works, as docs/operate/database.md says. Returns the copy."""
        self._backups += 1
        path = self._folder / f"backup-{self._backups}.sqlite"
        await asyncio.to_thread(self._copy, path)
        return path

    def _copy(self, path: Path) -> None:
        with closing(sqlite3.connect(self._folder / "turnwire.db")) as db:
            db.execute("VACUUM INTO ?", (str(path),))

    def put_back(self, backup: Path) -> None:
        """Puts the copy in the place of the database, while no server runs, as docs/operate/database.md says."""
        assert self._server is None
        shutil.copy(backup, self._folder / "turnwire.db")
        for beside in ("-wal", "-shm"):
            (self._folder / f"turnwire.db{beside}").unlink(missing_ok=True)

    async def heads(self, sessions: list[str]) -> dict[str, int]:
        """Returns the head of each session that is there."""
        found = {}
        for session_id in sessions:
            with contextlib.suppress(grpc.aio.AioRpcError):
                found[session_id] = (await session_of(self.client, session_id)).head_sequence
        return found

    async def check_next_requests(self, session_id: str) -> None:
        """Checks what each model would be sent now: whatever happened, the session can go on with any of them."""
        for provider_id, model_id in MODELS:
            settings = TurnSettings(model=model_name(model_id, provider_id))
            request = ExplainContextRequest(session_id=session_id, settings=settings)
            told = await self.client.messages.ExplainContext(request)
            found = refusals(told.api, json.loads(told.request_json))
            assert not found, f"what {model_id} would be sent: {found}"

    def examine(self) -> None:
        """Checks the database of a server that is not running: the doctor finds nothing."""
        assert self._server is None
        assert_sound(self._folder / "turnwire.db")

    async def rest(self, sessions: list[str]) -> None:
        """Returns when nothing happens in these sessions before somebody acts.

        Raises:
            AssertionError: it never comes to rest.
        """
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await self._rests(sessions):
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            shown = [str(await session_of(self.client, session_id)) for session_id in sessions]
            raise AssertionError("\n".join(["the sessions hang", *shown])) from None

    async def _rests(self, sessions: list[str]) -> bool:
        """Returns whether every turn that runs waits for a person, a client or an answer that is held back."""
        working = 0
        for session_id in sessions:
            session = await session_of(self.client, session_id)
            if session.status == SESSION_STATUS_IDLE:
                if session.queued_messages:
                    return False
                continue
            request = GetTurnRequest(session_id=session_id, turn_id=session.active_turn_id)
            if not session.active_turn_id:
                return False
            turn = (await self.client.turns.GetTurn(request)).turn
            working += turn.status != TURN_STATUS_WAITING
        return working <= len(self.answers.held())
