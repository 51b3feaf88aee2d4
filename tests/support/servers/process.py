"""A real server in a process of its own, to be killed."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from tests.support.servers.commands import Command, start_command

_PREFIX = "listening on "


class ServerProcess:
    """One `turnwire serve`. Make it with `start`; end it with `kill` or `terminate`."""

    def __init__(self, process: Command) -> None:
        """Takes the process; use `start`."""
        self._process = process
        self._listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())
        self.address = ""
        self.stderr: list[str] = []
        """Lines so far."""

    @classmethod
    async def start(
        cls,
        folder: Path,
        toml: str = "",
        environ: Mapping[str, str] | None = None,
        *,
        name: str = "turnwire",
        listen: str = "127.0.0.1:0",
        options: Sequence[str] = (),
        forked: bool = True,
        within: Sequence[str] = (),
    ) -> "ServerProcess":
        """Starts a server on a free port with the database `folder/NAME.db`.

        Args:
            folder: Where configuration and database live; an existing database is opened.
            toml: Configuration, without `server.listen` and `storage.path`.
            environ: Variables besides those of this process.
            name: Of the database and the configuration.
            listen: The address; a free port unless a server that is gone is started again.
            options: Further options of the command.
            forked: False for a new interpreter, whose modules see `environ` when they are imported.
            within: Words before the command of a new interpreter, to run it on another host.

        Raises:
            RuntimeError: the process ended before it served; the text is its stderr.
        """
        file = folder / f"{name}.toml"
        file.write_text(toml)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("TURNWIRE_", "OPENAI_", "ANTHROPIC_"))}
        process = await start_command(
            *("serve", "--config", str(file), "--listen", listen, "--db", str(folder / f"{name}.db"), *options),
            cwd=folder,
            environ={**clean, **(environ or {})},
            toml=toml,
            forked=forked,
            within=within,
        )
        server = cls(process)
        await asyncio.wait((server._listening, server._reading), return_when=asyncio.FIRST_COMPLETED)
        if not server._listening.done():
            await process.wait()
            raise RuntimeError("\n".join(server.stderr))
        server.address = server._listening.result()
        return server

    @property
    def pid(self) -> int:
        """The process id, of one that was not forked."""
        assert isinstance(self._process, asyncio.subprocess.Process)
        return self._process.pid

    async def kill(self) -> None:
        """Ends the process with SIGKILL. Idempotent."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        await self.ended()

    def send_signal(self, number: int) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    async def terminate(self) -> int:
        """Sends SIGTERM and returns the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        """Waits for the end of the process and returns its exit code."""
        code = await self._process.wait()
        await self._reading
        return code

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.stderr.append(line.decode().rstrip("\n"))
            _, found, address = self.stderr[-1].partition(_PREFIX)
            if found and not self._listening.done():
                self._listening.set_result(address.partition('"')[0].strip())  # a JSON line goes on behind it


@contextlib.asynccontextmanager
async def server_process(
    folder: Path, toml: str = "", environ: Mapping[str, str] | None = None, *, forked: bool = True
) -> AsyncIterator[ServerProcess]:
    """Runs a server process as `ServerProcess.start` does; kills it at the end when it still runs."""
    server = await ServerProcess.start(folder, toml, environ, forked=forked)
    try:
        yield server
    finally:
        await server.kill()
