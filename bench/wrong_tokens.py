"""`python -m bench.wrong_tokens ADDRESS PATH PER_SECOND`: an attacker, which sends the tokens that it reads from stdin.

It has a number of calls under way, as a program with that many threads has, and starts at most the given number a
second. Each line of the output is the number of calls that were answered in a second. It runs until it is killed.
"""

import asyncio
import contextlib
import itertools
import sys
import time

import grpc

from bench.loop import run

CONNECTIONS = 4
CALLERS = 1_000


async def _main(address: str, path: str, per_second: int, tokens: list[str]) -> None:
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(CONNECTIONS)]
    supply = itertools.cycle(tokens)
    numbers = itertools.count()
    started = time.perf_counter()
    answered = 0

    async def attack(channel: grpc.aio.Channel) -> None:
        nonlocal answered
        call = channel.unary_unary(path)
        while True:
            await asyncio.sleep(max(0.0, started + next(numbers) / per_second - time.perf_counter()))
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call(b"", metadata=(("authorization", f"Bearer {next(supply)}"),))
            answered += 1

    attackers = [asyncio.create_task(attack(channels[number % CONNECTIONS])) for number in range(CALLERS)]
    while attackers:
        before = answered
        await asyncio.sleep(1)
        print(answered - before, flush=True)


if __name__ == "__main__":
    run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.stdin.read().split()))
