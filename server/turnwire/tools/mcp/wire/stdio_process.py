"""An MCP server as a child process: a transport for the SDK.

Not the SDK's transport, because that gives a child two seconds at each step of its end, while the whole server stops in
two, and because it logs the child's output. On Linux a small process stands between (`supervisor.py`), which ends all
that the child has started, also when this server dies. Elsewhere the child's process group ends with it.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

from turnwire.tools.mcp.wire.pace import Pace
from turnwire.tools.mcp.wire.reading import message_of
from turnwire.tools.settings import McpSettings

_EXIT_SECONDS = 0.4
"""How long a child may take to exit after its input was closed."""

_END_SECONDS = 0.5
"""How long it may take after SIGTERM: a little longer than its supervisor gives it."""

MAX_LINE_BYTES = 32 * 2**20
"""Of one line. From the longest message on it is read only to its end, and its call gets an error."""

_READ_BYTES = 64 * 1024

_LINES_OF_UNIT = 500
"""Lines that are looked at and are no messages, and cost together what a message costs."""

_LAST_WORDS_BYTES = 4096
"""Of what a child writes to its standard error at once, in which the last line is looked for."""

_IS_SUPERVISED = sys.platform == "linux"

_SUPERVISOR = (sys.executable, "-I", "-S", str(Path(__file__).with_name("supervisor.py")))

_USUAL_VARIABLES = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "SYSTEMROOT", "TEMP", "TMPDIR", "USER")


@contextlib.asynccontextmanager
async def stdio_process(
    settings: McpSettings, environ: Mapping[str, str], ended: Callable[[str], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """Starts the child and yields the streams of messages from it and to it. Ends it on leaving, within a second.

    Args:
        settings: Command, arguments, folder, names of variables.
        environ: The environment for the variables.
        ended: Called once, with the reason, when the child exits or closes the connection by itself.

    Raises:
        OSError: the program cannot be started.
    """
    import anyio  # noqa: PLC0415 - comes with the SDK

    process = await asyncio.create_subprocess_exec(
        *((*_SUPERVISOR, str(os.getpid()), str(settings.max_processes)) if _IS_SUPERVISED else ()),
        settings.command,
        *settings.args,
        cwd=settings.cwd,
        env={name: environ[name] for name in (*_USUAL_VARIABLES, *settings.env) if name in environ},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    to_session, from_child = anyio.create_memory_object_stream[Any](0)
    to_child, from_session = anyio.create_memory_object_stream[Any](0)
    child = _Child(process, ended)
    tasks = [
        asyncio.create_task(child.read(to_session), name="mcp stdout"),
        asyncio.create_task(child.write(from_session), name="mcp stdin"),
        asyncio.create_task(child.read_errors(), name="mcp stderr"),
    ]
    try:
        yield from_child, to_child
    finally:
        child.closing = True
        try:
            await child.end()
        finally:
            child.kill()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (to_session, from_child, to_child, from_session):
                stream.close()
            # otherwise a grandchild's open pipe keeps the transport alive, which warns when it is collected
            process._transport.close()  # type: ignore[attr-defined]


class _Child:
    """One process and its pipes. `stdio_process` owns its tasks."""

    def __init__(self, process: asyncio.subprocess.Process, ended: Callable[[str], None]) -> None:
        self._process = process
        self._ended = ended
        self._last_error = ""
        self._errors_ended = asyncio.Event()
        self.closing = False

    async def read(self, to_session: Any) -> None:
        """Passes the child's messages to the session until the child closes its output."""
        from mcp.shared.message import SessionMessage  # noqa: PLC0415

        reason, pace = "", Pace()
        async with to_session:
            async for line in self._lines(pace):
                await pace.take(1)
                message = await message_of(line)
                if message is not None:  # else the next line may be one
                    await to_session.send(SessionMessage(message))
            reason = await self._exit_reason()
            if not self.closing:
                self._ended(reason)

    async def write(self, from_session: Any) -> None:
        """Passes the session's messages to the child."""
        pipe = self._process.stdin
        assert pipe is not None
        async with from_session:
            async for item in from_session:
                pipe.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                with contextlib.suppress(ConnectionError):  # the reader reports that the child is gone, and why
                    await pipe.drain()

    async def read_errors(self) -> None:
        """Keeps the last line of the child's standard error, to explain why it ended."""
        pipe, pace = self._process.stderr, Pace()
        assert pipe is not None
        while data := await pipe.read(_READ_BYTES):
            await pace.take(1, len(data))
            lines = data[-_LAST_WORDS_BYTES:].decode("utf-8", "replace").strip().splitlines()
            self._last_error = " ".join(lines[-1].split())[:300] if lines else self._last_error
        self._errors_ended.set()

    async def end(self) -> None:
        """Asks the child to exit: closes its input, then sends SIGTERM."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if not await self._exited(_EXIT_SECONDS):
            self._signal(signal.SIGTERM)
            await self._exited(_END_SECONDS)

    def kill(self) -> None:
        """Kills the child and what it has started, which may take a moment. Idempotent."""
        if _IS_SUPERVISED:
            self._signal(signal.SIGINT)
            self._signal(signal.SIGCONT)
        else:
            self._signal(signal.SIGKILL)

    async def _lines(self, pace: Pace) -> AsyncGenerator[bytes]:
        """Yields the lines that may be messages."""
        pipe = self._process.stdout
        assert pipe is not None
        waiting = bytearray()
        while data := await pipe.read(_READ_BYTES):
            await pace.take(data.count(b"\n") / _LINES_OF_UNIT, len(data))
            waiting += data
            if b"\n" in data:
                end = waiting.rfind(b"\n")
                with memoryview(waiting) as view:  # a message of 12 MB is copied once
                    lines = bytes(view[:end])
                del waiting[: end + 1]
                for line in lines.split(b"\n"):
                    if line.lstrip().startswith(b"{"):
                        yield line
            if len(waiting) > MAX_LINE_BYTES:
                self._last_error = f"it sent a message larger than {MAX_LINE_BYTES} bytes"
                return

    async def _exit_reason(self) -> str:
        if await self._exited(_EXIT_SECONDS):
            with contextlib.suppress(TimeoutError):  # a grandchild may keep the pipe open
                async with asyncio.timeout(0.2):
                    await self._errors_ended.wait()
        code = self._process.returncode
        how = "closed its output" if code is None else f"ended with code {code}"
        return f"the process {how}" + (f": {self._last_error}" if self._last_error else "")

    async def _exited(self, seconds: float) -> bool:
        # not process.wait(), which also waits until every grandchild has closed the pipes
        for _ in range(int(seconds / 0.01)):
            if self._process.returncode is not None:
                return True
            await asyncio.sleep(0.01)
        return self._process.returncode is not None

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
