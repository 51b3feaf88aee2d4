"""`python -m bench.asked_provider`: a model that answers with the moment at which it had the whole request.

It does not look into the request, so that large ones cost it little.
"""

import asyncio
import signal

from bench.loop import run
from bench.model_provider import END, delta, first

_HEADERS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        left = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        while left:
            left -= len(await reader.read(left))
        writer.write(_HEADERS + first() + delta() + END)
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the caller has gone
    finally:
        writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, limit=2**20, backlog=4096)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"listening on http://{host}:{port}", flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()


if __name__ == "__main__":
    run(_serve())
