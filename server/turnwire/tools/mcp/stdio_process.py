"""An MCP server as a child process: a transport for the SDK.

It replaces the SDK's transport, which gives a child two seconds at each step of its end, while the whole server stops
in two, and which logs the child's output. The child has a process group of its own, which ends with it.
"""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from turnwire.tools.settings import McpSettings

MAX_MESSAGE_BYTES = 12 * 2**20
"""Maximum size of one message: the files that a result may have, in base64, and a margin. Reading one takes up to 25
milliseconds, in which nothing else runs."""

_EXIT_SECONDS = 0.4
"""Maximum time for a child to exit after its input was closed."""

_END_SECONDS = 0.3
"""Maximum time for it to exit after SIGTERM."""

_READ_BYTES = 64 * 1024

_LAST_WORDS_BYTES = 4096
"""Size of the tail of a child's standard error in which the last line is searched."""

_ID_BYTES = 512
"""Bytes at the start of an unreadable message in which its id is searched."""

_ID = re.compile(rb'"id"\s{0,8}:\s{0,8}(\d{1,15})\b')

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
        settings.command,
        *settings.args,
        cwd=settings.cwd,
        env={name: environ[name] for name in (*_USUAL_VARIABLES, *settings.env) if name in environ},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        limit=MAX_MESSAGE_BYTES,
    )
    to_session, from_child = anyio.create_memory_object_stream[Any](0)
    to_child, from_session = anyio.create_memory_object_stream[Any](0)
    child = _Child(process, ended)
    tasks = [
        asyncio.create_task(child.read(to_session), name="mcp stdout"),
        asyncio.create_task(child.write(from_session), name="mcp stdin"),
        asyncio.create_task(child.read_errors(), name="mcp stderr"),
        asyncio.create_task(child.watch(), name="mcp exit"),
    ]
    try:
        yield from_child, to_child
    finally:
        child.closing = True
        try:
            await child.end()
        finally:
            child.signal(signal.SIGKILL)
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

        async with to_session:
            async for line in self._lines():
                message = message_of(line)
                if message is None:
                    await asyncio.sleep(0)  # the next line may have arrived already
                else:
                    await to_session.send(SessionMessage(message))
            await self._report_end()

    async def watch(self) -> None:
        """Reports the end of the child even if a process that it started keeps its output open."""
        await self._process.wait()
        await asyncio.sleep(_EXIT_SECONDS)  # its last output is read first
        await self._report_end()

    async def write(self, from_session: Any) -> None:
        """Passes the session's messages to the child."""
        pipe = self._process.stdin
        assert pipe is not None
        async with from_session:
            async for item in from_session:
                pipe.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                with contextlib.suppress(ConnectionError):  # the reader reports that the child has ended, and why
                    await pipe.drain()

    async def read_errors(self) -> None:
        """Keeps the last line of the child's standard error, to explain why it ended."""
        pipe = self._process.stderr
        assert pipe is not None
        while data := await pipe.read(_READ_BYTES):
            lines = data[-_LAST_WORDS_BYTES:].decode("utf-8", "replace").strip().splitlines()
            self._last_error = " ".join(lines[-1].split())[:300] if lines else self._last_error
            await asyncio.sleep(0)  # the next piece may have arrived already
        self._errors_ended.set()

    async def end(self) -> None:
        """Makes the child exit: closes its input, then sends SIGTERM."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if not await self._exited(_EXIT_SECONDS):
            self.signal(signal.SIGTERM)
            await self._exited(_END_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the child and to the other processes in its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _lines(self) -> AsyncGenerator[bytes]:
        pipe = self._process.stdout
        assert pipe is not None
        while True:
            try:
                line = await pipe.readline()
            except ValueError:  # raised above the pipe's limit
                self._last_error = f"it sent a message larger than {MAX_MESSAGE_BYTES} bytes"
                return
            if not line:
                return
            yield line

    async def _report_end(self) -> None:
        """Reports the reason once, unless the connection is being closed."""
        if await self._exited(_EXIT_SECONDS):
            with contextlib.suppress(TimeoutError):  # a grandchild may keep the pipe open
                async with asyncio.timeout(0.2):
                    await self._errors_ended.wait()
        code = self._process.returncode
        how = "closed its output" if code is None else f"ended with code {code}"
        if not self.closing:
            self.closing = True
            self._ended(f"the process {how}" + (f": {self._last_error}" if self._last_error else ""))

    async def _exited(self, seconds: float) -> bool:
        # not process.wait(), which also waits until every grandchild has closed the pipes
        for _ in range(int(seconds / 0.01)):
            if self._process.returncode is not None:
                return True
            await asyncio.sleep(0.01)
        return self._process.returncode is not None


def message_of(line: bytes) -> Any:
    """Returns the message in a line, an error for the call that it was to answer, or None when it is neither."""
    from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter  # noqa: PLC0415 - in the SDK

    if not line.lstrip().startswith(b"{"):
        return None  # programs print greetings
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        begin = line[:_ID_BYTES]
        found = _ID.search(begin)
        if found is None or b'"method"' in begin:
            return None
        why = "the server's answer cannot be read: it is not a message of JSON-RPC"
        return JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=ErrorData(code=PARSE_ERROR, message=why))
