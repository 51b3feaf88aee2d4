"""`python -m bench.many_streams`: an HTTP server like `bench.model_provider` that paces thousands of streams cheaply.

A clock for all of them takes the place of a timer for each: a stream belongs to one of the slots of a period and gets
its delta when the slot's time has come. A stream that nobody reads is left out while its buffer is full.
"""

import asyncio
import itertools
import json
import signal

from bench.loop import run
from bench.model_provider import END, delta, first

SLOTS = 10
"""Parts of a period, so that not all streams have their deltas in the same moment."""
FULL_BYTES = 2**16

_HEADERS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


class Stream:
    """An answer that is being sent."""

    def __init__(self, writer: asyncio.StreamWriter, deltas: int) -> None:
        """Takes an open connection and how many deltas to send."""
        self.writer = writer
        self.left = deltas
        self.over = asyncio.Event()


class Clock:
    """Sends the deltas of all streams of one pace."""

    def __init__(self, per_second: int) -> None:
        """Takes the deltas a second of each stream."""
        self._pause = 1 / per_second / SLOTS
        self._slots: list[set[Stream]] = [set() for _ in range(SLOTS)]
        self._next = itertools.cycle(range(SLOTS))
        self._task = asyncio.create_task(self._tick())

    def join(self, stream: Stream) -> None:
        """Begins with a stream; `Stream.over` tells its end."""
        self._slots[next(self._next)].add(stream)

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        for slot in itertools.cycle(self._slots):
            due += self._pause
            await asyncio.sleep(max(0.0, due - loop.time()))
            for stream in list(slot):
                self._write(slot, stream)

    def _write(self, slot: set[Stream], stream: Stream) -> None:
        transport = stream.writer.transport
        if transport.is_closing() or stream.left == 0:
            slot.discard(stream)
            stream.over.set()
        elif transport.get_write_buffer_size() < FULL_BYTES:
            stream.left -= 1
            transport.write(delta())


async def _serve() -> None:
    clocks: dict[int, Clock] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            deltas, per_second = map(int, json.loads(await reader.readexactly(length))["model"].split("-")[1:])
            writer.write(_HEADERS + first())
            stream = Stream(writer, deltas)
            if per_second not in clocks:
                clocks[per_second] = Clock(per_second)
            clocks[per_second].join(stream)
            await stream.over.wait()
            writer.write(END)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the caller has gone
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**26, backlog=4096)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"listening on http://{host}:{port}", flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    server.close()


if __name__ == "__main__":
    run(_serve())
