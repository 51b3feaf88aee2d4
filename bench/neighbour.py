"""`python -m bench.neighbour ADDRESS PROVIDER TOKEN`: a client in its own process, who notices what others do.

It watches a session that streams 50 deltas a second, reads a session every 20 ms and appends a message every 50 ms.
Each call starts at its time, whether the one before it has ended or not. So a server that does not answer for a while
is noticed by all calls that come meanwhile. The process reads lines from stdin: `begin` forgets what was measured,
`report` prints it as one line of JSON.
"""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import grpc

from bench.child import ROOT, Child
from bench.client import Client, connect
from bench.loop import run
from bench.model_provider import model_name
from bench.report import Figure, percentile

PER_SECOND = 50
READ_SECONDS, WRITE_SECONDS = 0.02, 0.05
LONGEST_DELTAS = 1_000_000
"""More than a measurement lasts."""
SETTLE_SECONDS = 0.5
"""Deltas that are under way when a report is asked for are given this time to come."""
PATIENCE_SECONDS = 20.0
"""Calls that are under way then are waited for so long. Those that have not ended count with their age."""

_TEXT = 100
"""Characters of the text of a failure that are told."""

_MOMENT = re.compile(rb"@(\d+)@")


@dataclass
class Felt:
    """Waits of the neighbour in milliseconds, in the order of their starts."""

    deltas: list[float] = field(default_factory=list)
    """From the provider's socket to the watcher."""
    reads: list[float] = field(default_factory=list)
    """Calls of GetSession."""
    writes: list[float] = field(default_factory=list)
    """Calls of AppendMessage."""
    came: list[float] = field(default_factory=list)
    """When deltas came: milliseconds of a clock."""
    failures: dict[str, int] = field(default_factory=dict)
    """Calls and streams that ended with an error: how many, by the name of the status and its text."""

    def longest_gap(self) -> float:
        """Returns the longest time between two deltas in milliseconds; 0 when there were none."""
        return max((later - earlier for earlier, later in pairwise(self.came)), default=0.0)

    def note_failure(self, error: grpc.aio.AioRpcError) -> None:
        """Counts a call or a stream that ended with an error."""
        name = f"{error.code().name}: {(error.details() or '')[:_TEXT]}"
        self.failures[name] = self.failures.get(name, 0) + 1


class Neighbour:
    """The running process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Takes a process that has announced itself."""
        self._process = process

    async def begin(self) -> None:
        """Forgets what was measured so far."""
        await self._say("begin")

    async def felt(self) -> Felt:
        """Returns what was measured since `begin`."""
        return Felt(**json.loads(await self._say("report")))

    async def _say(self, word: str) -> bytes:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the neighbour has no pipes")
        self._process.stdin.write(word.encode() + b"\n")
        answer = await self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the neighbour has ended")
        return answer


@contextlib.asynccontextmanager
async def neighbour(server: Child, provider: str, token: str = "") -> AsyncIterator[Neighbour]:
    """Runs a neighbour and ends it afterwards.

    Args:
        server: Turnwire.
        provider: The id of a configured provider of kind openai_chat whose address is a `bench.model_provider` that
            serves nobody else, or the work of that process is measured too.
        token: Its credential; "" when the server wants none.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.neighbour", server.address, provider, token),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=2**26,
    )
    try:
        one = Neighbour(process)
        await one.begin()
        yield one
    finally:
        if process.stdin is not None:
            process.stdin.close()
        await process.wait()


def figures(
    name: str, felt: Felt, alone: Felt, *, delta_p50: float | None, delta_p99: float | None, read_p99: float | None
) -> list[Figure]:
    """Returns the rows of a neighbour.

    Args:
        name: What happened beside it.
        felt: What it measured then.
        alone: The same with nothing beside it, in the same run: the ceiling.
        delta_p50: The wanted milliseconds.
        delta_p99: Likewise.
        read_p99: Likewise.
    """
    rows = [
        ("delta p50", felt.deltas, alone.deltas, 50, delta_p50),
        ("delta p99", felt.deltas, alone.deltas, 99, delta_p99),
        ("GetSession p99", felt.reads, alone.reads, 99, read_p99),
        ("AppendMessage p99", felt.writes, alone.writes, 99, None),
    ]
    return [
        Figure(f"{name}: neighbour's {what}", percentile(one, p), percentile(two, p), "ms", True, wanted=wanted)
        for what, one, two, p, wanted in rows
        if one and two
    ]


_pending: dict[asyncio.Task[Any] | None, tuple[float, str]] = {}
"""When each call that has not ended began, and what it counts as."""


async def _settle(felt: list[Felt]) -> None:
    """Waits for the calls that are under way."""
    tasks = {task for task in _pending if task is not None}
    if not tasks:
        return
    _, late = await asyncio.wait(tasks, timeout=PATIENCE_SECONDS)
    for task in late:
        if task in _pending:
            began, into = _pending[task]
            getattr(felt[0], into).append((time.perf_counter() - began) * 1000)


async def _live(address: str, provider: str, token: str) -> None:
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with connect(address, token) as client:
        session_id, other_id = await client.create_session(), await client.create_session()
        stream = await client.watch(session_id)
        await client.send(session_id, "go", f"{provider}/{model_name(LONGEST_DELTAS, PER_SECOND)}")
        felt = [Felt()]  # replaced by `begin`
        work = [
            asyncio.create_task(_watch(stream, felt)),
            asyncio.create_task(_pace(READ_SECONDS, lambda: client.is_running(other_id), felt, "reads")),
            asyncio.create_task(_pace(WRITE_SECONDS, lambda: client.append(other_id, "hello"), felt, "writes")),
        ]
        while not felt[0].deltas:
            await asyncio.sleep(0.01)  # until the SDK is imported and the stream flows
        while line := (await lines.readline()).strip():
            if line == b"begin":
                felt[0] = Felt()
                print("ok", flush=True)
            else:
                await asyncio.sleep(SETTLE_SECONDS)
                await _settle(felt)
                print(json.dumps(asdict(felt[0])), flush=True)
        for task in work:
            task.cancel()
        await _end(client, session_id)


async def _end(client: Client, session_id: str) -> None:
    with contextlib.suppress(grpc.aio.AioRpcError):  # the server may be gone
        await client.abort(session_id)


async def _watch(stream: Any, felt: list[Felt]) -> None:
    newest = 0
    while (batch := await _next(stream, felt)) is not grpc.aio.EOF:
        now = time.monotonic_ns()
        for digits in _MOMENT.findall(batch):
            moment = int(digits)
            if moment > newest:  # a snapshot repeats the text
                newest = moment
                felt[0].deltas.append((now - moment) / 1e6)
        felt[0].came.append(now / 1e6)


async def _next(stream: Any, felt: list[Felt]) -> Any:
    try:
        return await stream.read()
    except grpc.aio.AioRpcError as error:
        felt[0].note_failure(error)
        return grpc.aio.EOF


async def _pace(seconds: float, call: Callable[[], Awaitable[object]], felt: list[Felt], into: str) -> None:
    loop, running = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    due = loop.time()

    async def one() -> None:
        started, now = time.perf_counter(), felt[0]
        try:
            await call()
        except grpc.aio.AioRpcError as error:
            now.note_failure(error)
        else:
            getattr(now, into).append((time.perf_counter() - started) * 1000)
        finally:
            _pending.pop(asyncio.current_task(), None)

    while True:
        due += seconds
        await asyncio.sleep(max(0.0, due - loop.time()))
        task = asyncio.create_task(one())
        _pending[task] = (time.perf_counter(), into)
        running.add(task)
        task.add_done_callback(running.discard)


if __name__ == "__main__":
    run(_live(*sys.argv[1:4]))
