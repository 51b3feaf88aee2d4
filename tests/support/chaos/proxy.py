"""A TCP proxy that treats each connection badly, in a way that a seed decides.

    python -m tests.support.chaos.proxy --to HOST:PORT [--seed N] [--life SECONDS]

It prints the address that it listens on, and runs until it is interrupted. A connection is refused, cut, reset or left
half open; until then it is delayed, throttled and sent on in other pieces than it came in. Some connections are held
back before they are made, so that later ones overtake them.
"""

import argparse
import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from dataclasses import dataclass
from typing import Self

ENDS = ("cut", "reset", "half open", "refused")
_WEIGHTS = (45, 30, 15, 10)

LIFE_SECONDS = 1.0
"""Average lifetime of a connection."""


@dataclass(frozen=True)
class Fate:
    """The fault of one connection."""

    end: str
    """One of ENDS, or "whole"."""
    life_seconds: float
    """Until its end."""
    max_bytes: int
    """Its end comes earlier when so many bytes came from the server; 0 for no such limit."""
    held_seconds: float
    """Before it is made."""
    delay_seconds: float
    """For each piece."""
    bytes_per_second: float
    max_piece: int
    """Most bytes that are sent on at once."""
    silence_seconds: float
    """Time for which a half-open connection is silent before it is reset."""

    @classmethod
    def drawn(cls, rng: random.Random, life_seconds: float) -> "Fate":
        """Draws one."""
        return cls(
            end=rng.choices(ENDS, _WEIGHTS)[0],
            life_seconds=rng.uniform(0.05, 2 * life_seconds),
            max_bytes=rng.randint(200, 20_000) if rng.random() < 0.2 else 0,
            held_seconds=life_seconds * rng.uniform(0, 0.8) if rng.random() < 0.3 else 0,
            delay_seconds=rng.choice((0, 0, 0.005, 0.03)),
            bytes_per_second=rng.choice((60_000, 300_000, 10_000_000)),
            max_piece=rng.choice((7, 300, 65_536)),
            silence_seconds=life_seconds * rng.uniform(0.3, 2.5),
        )


WELL = Fate("whole", 0, 0, 0, 0, 1e9, 65_536, 0)


class ChaosProxy:
    """Listens on a free port of this machine. Use it as an async context manager."""

    def __init__(self, to: str, seed: int = 0, life_seconds: float = LIFE_SECONDS) -> None:
        """Args:
        to: HOST:PORT to connect to. May be changed: new connections go there.
        seed: Decides the fate of each connection, by its number.
        life_seconds: How long a connection lasts on average.
        """
        self.to = to
        self.address = ""
        """HOST:PORT on which it listens."""
        self.ends: Counter[str] = Counter()
        """Number of connections, by their end."""
        self.is_used = asyncio.Event()
        """Set with the first connection."""
        self._seed = seed
        self._life_seconds = life_seconds
        self._count = 0
        self._is_calm = False
        self._lines: set[_Line] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        """Begins to listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stops to listen and cuts all connections."""
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def calm(self) -> None:
        """Leaves connections whole and quick from now on, those that are there too, except half-open ones."""
        self._is_calm = True
        for line in self._lines:
            line.fate = WELL

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._count += 1
        self.is_used.set()
        fate = Fate.drawn(random.Random(f"{self._seed}-{self._count}"), self._life_seconds)
        fate = WELL if self._is_calm else fate
        self.ends[fate.end] += 1
        try:
            await self._serve(reader, writer, fate)
        except OSError:
            pass  # the server is not there, or either side has gone
        except asyncio.CancelledError:
            pass  # this proxy stops; who waits for the task expects no error
        finally:
            _reset(writer)
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fate: Fate) -> None:
        if fate.end == "refused":
            return
        await asyncio.sleep(fate.held_seconds)
        host, _, port = self.to.rpartition(":")
        server_reader, server_writer = await asyncio.open_connection(host, int(port))
        line = _Line(WELL if self._is_calm else fate)
        self._lines.add(line)
        pipes = [
            asyncio.create_task(line.pipe(reader, server_writer, random.Random(0))),
            asyncio.create_task(line.pipe(server_reader, writer, random.Random(1), counts=True)),
        ]
        try:
            ending = [asyncio.create_task(self._ended(line))] if fate.end != "whole" else []
            await asyncio.wait([*pipes, *ending], return_when=asyncio.FIRST_COMPLETED)
            for task in ending:
                if not task.done():
                    task.cancel()
                elif fate.end == "half open":
                    await asyncio.sleep(fate.silence_seconds)
            if fate.end == "cut" and not any(pipe.done() for pipe in pipes):
                with contextlib.suppress(OSError):
                    writer.write_eof()
        finally:
            self._lines.discard(line)
            for pipe in pipes:
                pipe.cancel()
            await asyncio.gather(*pipes, return_exceptions=True)
            server_writer.close()

    async def _ended(self, line: "_Line") -> None:
        """Waits for the end of a connection's life."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(line.fate.life_seconds):
                await line.is_full.wait()
        while self._is_calm:
            await asyncio.sleep(3600)
        line.is_silent = True


class _Line:
    """One connection on its way."""

    def __init__(self, fate: Fate) -> None:
        self.fate = fate
        self.is_silent = False
        """Whether arriving bytes are dropped without notice."""
        self.is_full = asyncio.Event()
        """Set when the server has sent as many bytes as the fate allows."""
        self._bytes = 0

    async def pipe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random, *, counts: bool = False
    ) -> None:
        """Sends on what comes until its sender ends."""
        while data := await reader.read(65_536):
            while data and not self.is_silent:
                size = rng.randint(1, self.fate.max_piece)
                piece, data = data[:size], data[size:]
                pause = self.fate.delay_seconds + len(piece) / self.fate.bytes_per_second
                if pause > 0.001:
                    await asyncio.sleep(pause if len(piece) > 100 else pause / 30)
                if self.is_silent:
                    break
                writer.write(piece)
                await writer.drain()
                if counts:
                    self._bytes += len(piece)
                    if self.fate.max_bytes and self._bytes >= self.fate.max_bytes:
                        self.is_full.set()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes a connection at once: its other end reads a reset, unless it read the end before."""
    connection = writer.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", required=True, help="HOST:PORT to connect to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--life", type=float, default=LIFE_SECONDS, help="seconds that a connection lasts on average")
    options = parser.parse_args()
    async with ChaosProxy(options.to, options.seed, options.life) as proxy:
        print(proxy.address, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main())
