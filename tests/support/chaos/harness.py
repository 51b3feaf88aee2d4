"""Runs a client's program through the chaos, and compares what it holds with what is stored.

    python -m tests.support.chaos.harness NAME [--seconds N] [--seed N]

NAME is a row of `programs`. Prints what happened; exits 1 when the program holds anything else.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.json_format import MessageToDict, ParseDict

from opencode.message.content_pb2 import SessionMessage
from tests.support.chaos.programs import PROGRAMS, ROOT, Program
from tests.support.chaos.proxy import ChaosProxy
from tests.support.chaos.traffic import CONFIGURATION, FollowedTraffic
from tests.support.clients.conversation import messages_of, new_session
from tests.support.oracles.fold import compared
from tests.support.servers.mcp import own_port
from tests.support.servers.process import ServerProcess
from tests.support.servers.running import Client, connect

LAST_SECONDS = 90
"""Seconds that a program has to reach the end once the network is calm."""


@dataclass
class Outcome:
    """Result of a run."""

    happened: dict[str, int]
    """Number of times that each thing happened in the session."""
    connections: dict[str, int]
    """Number of connections, by their end."""
    stored: list[SessionMessage]
    """Messages of the server, reduced to the compared fields."""
    held: list[SessionMessage] = field(default_factory=list)
    """Messages that the program printed, reduced in the same way."""
    code: int | None = None
    """Exit code of the program; None when it did not end in time."""
    stderr: str = ""

    def differences(self) -> str:
        """Returns what is wrong, for people; "" when nothing is."""
        if self.code != 0:
            return f"exit code {self.code}: {self.stderr[-3000:]}"
        ids = [[m.message_id for m in messages] for messages in (self.held, self.stored)]
        if ids[0] != ids[1]:
            return f"the program holds the messages\n{ids[0]}\nand stored are\n{ids[1]}"
        pairs = zip(self.held, self.stored, strict=True)
        wrong = [f"it holds\n{MessageToDict(a)}\nand stored is\n{MessageToDict(b)}" for a, b in pairs if a != b]
        return "\n".join(wrong[:1])


def build(program: Program, work: Path) -> None:
    """Builds a program; `work` is an empty folder for it.

    Raises:
        subprocess.CalledProcessError: a command failed; its output was printed.
    """
    for command in program.build:
        subprocess.run(_filled(command, work), cwd=ROOT / program.folder, check=True, timeout=500)


def _filled(command: tuple[str, ...], work: Path) -> list[str]:
    return [word.replace("{work}", str(work)) for word in command]


class _Servers:
    """A server that is killed and started again at the same addresses."""

    def __init__(self, folder: Path, web_port: int, running: AsyncExitStack) -> None:
        self._folder = folder
        self._toml = CONFIGURATION + (f'[web]\nlisten = "127.0.0.1:{web_port}"\n' if web_port else "")
        self._running = running
        self._server: ServerProcess | None = None
        self.address = "127.0.0.1:0"

    async def start(self) -> Client:
        """Starts it and returns a client."""
        self._server = await ServerProcess.start(self._folder, self._toml, listen=self.address)
        self.address = self._server.address
        return await self._running.enter_async_context(connect(self.address))

    async def again(self) -> Client:
        """Kills it, starts it again and returns a client."""
        await self.stop()
        return await self.start()

    async def stop(self) -> None:
        """Kills it."""
        if self._server is not None:
            await self._server.kill()


async def run(program: Program, folder: Path, work: Path, seconds: float, seed: int) -> Outcome:
    """Runs a program that is built while there is traffic for a time, then until it has found the end.

    Args:
        program: What to run.
        folder: An empty folder for the server.
        work: The folder that the program was built in.
        seconds: How long the traffic lasts at least.
        seed: Decides the traffic and what happens to the connections.
    """
    async with AsyncExitStack() as running:
        web_port = running.enter_context(own_port()) if program.web else 0
        servers = _Servers(folder, web_port, running)
        client = await servers.start()
        running.push_async_callback(servers.stop)
        session_id = await new_session(client)
        traffic = FollowedTraffic(client, session_id, seed, servers.again)
        await traffic.quick()
        to = f"127.0.0.1:{web_port}" if web_port else servers.address
        proxy = await running.enter_async_context(ChaosProxy(to, seed))
        address = f"http://{proxy.address}" if program.web else proxy.address
        async with _started(program, work, address, session_id) as process:
            reading = asyncio.create_task(process.communicate())
            await _connected(proxy, reading)
            await traffic.follow(seconds)
            proxy.calm()
            async with connect(servers.address) as reader:
                stored = compared(await messages_of(reader, session_id))
            outcome = Outcome(dict(traffic.done), dict(proxy.ends), stored)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(reading), LAST_SECONDS)
                outcome.code = process.returncode
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            stdout, stderr = await reading
        outcome.stderr = stderr.decode(errors="replace")
        outcome.held = _messages(stdout) if outcome.code == 0 else []
        return outcome


async def _connected(proxy: ChaosProxy, reading: asyncio.Future[tuple[bytes, bytes]]) -> None:
    """Waits until the program has called, or has ended."""
    used = asyncio.create_task(proxy.is_used.wait())
    await asyncio.wait((used, reading), return_when=asyncio.FIRST_COMPLETED, timeout=LAST_SECONDS)
    used.cancel()


@contextlib.asynccontextmanager
async def _started(
    program: Program, work: Path, address: str, session_id: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}
    process = await asyncio.create_subprocess_exec(
        *_filled(program.command, work),
        address,
        session_id,
        cwd=ROOT / program.folder,
        env=clean,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        limit=1 << 26,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _messages(stdout: bytes) -> list[SessionMessage]:
    printed = json.loads(stdout.decode().strip().splitlines()[-1])
    return compared(ParseDict(one, SessionMessage()) for one in printed)


async def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    program = PROGRAMS[options.name]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as work:
        build(program, Path(work))
        outcome = await run(program, Path(folder), Path(work), options.seconds, options.seed)
    print(f"{len(outcome.stored)} messages; connections {outcome.connections}; happened {outcome.happened}")
    wrong = outcome.differences()
    print(wrong or f"{options.name} holds what is stored")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
