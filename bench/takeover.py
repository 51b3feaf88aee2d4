"""Duration of calls to the sessions of a node that dies, hangs or ends."""

import asyncio
import itertools
import os
import signal
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc

from bench.child import Child
from bench.client import Client, connect
from bench.cluster import balanced, node

NODES = 3
SESSIONS = 6
"""Sessions of the node that fails, each with a client of another node."""

FAULTS = {"kill -9": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP, "SIGTERM": signal.SIGTERM}

PAUSE_SECONDS = 0.02
"""Between two tries of a client."""


async def takeovers(folder: Path, url: str, rounds: int) -> dict[str, list[float]]:
    """Lets each node of three fail in turns, in each way so often.

    Returns:
        By fault, the seconds until a call to each of some sessions of the node was answered through another node. When
        a node ends by SIGTERM, the slowest call to a session until it is gone.
    """
    found: dict[str, list[float]] = {fault: [] for fault in FAULTS}
    names = map(str, itertools.count())
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(node(folder, url, next(names))) for _ in range(NODES)]
        for _ in range(rounds):
            for fault, number in FAULTS.items():
                await balanced(url, NODES)
                victim = running.pop(0)
                found[fault] += await _fail(victim, running, number)
                if number == signal.SIGSTOP:
                    os.kill(victim.pid, signal.SIGCONT)
                    running.append(victim)
                else:
                    running.append(await stack.enter_async_context(node(folder, url, next(names))))
    return found


async def _fail(victim: Child, others: Iterable[Child], number: signal.Signals) -> list[float]:
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(connect(victim.address))
        clients = itertools.cycle([await stack.enter_async_context(connect(one.address)) for one in others])
        asked = [(next(clients), await owner.create_session()) for _ in range(SESSIONS)]
        await asyncio.gather(*(client.append(session_id, "before") for client, session_id in asked))
        os.kill(victim.pid, number)
        if number == signal.SIGTERM:
            return await asyncio.gather(*(_slowest_until_end(*one, victim) for one in asked))
        return await asyncio.gather(*(_until_stored(*one) for one in asked))


async def _until_stored(client: Client, session_id: str) -> float:
    """Returns the seconds until a message is stored, repeated as often as the client is told to try again."""
    began = time.perf_counter()
    while True:
        try:
            await client.append(session_id, "after")
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            return time.perf_counter() - began


async def _slowest_until_end(client: Client, session_id: str, victim: Child) -> float:
    slowest, has_ended = 0.0, False
    while not has_ended:
        has_ended = victim.has_ended()  # one call more, whose session has another owner by then
        slowest = max(slowest, await _until_stored(client, session_id))
        await asyncio.sleep(PAUSE_SECONDS)
    return slowest
