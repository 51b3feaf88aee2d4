"""What a server may send before an answer and after it: a few provisional answers, and nothing."""

import asyncio
from functools import partial
from typing import Any

import aiohttp

MAX_PROVISIONAL = 10
"""Provisional answers (1xx) before an answer; servers send one, if any."""


class Answer(aiohttp.ClientResponse):
    """An answer before which only a few provisional ones may come, and after which the connection is silent.

    aiohttp skips any number of provisional answers, as fast as they come: the loop would do nothing else. It also reads
    a connection that waits for the next call, and keeps whatever comes there.
    """

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Reads the head of the answer. Raises aiohttp.ClientPayloadError: too many provisional ones come first."""
        protocol, left = connection.protocol, MAX_PROVISIONAL
        read = protocol.read

        async def read_few() -> Any:
            nonlocal left
            message, payload = await read()
            left -= 100 <= message.code < 200
            if left < 0:
                raise aiohttp.ClientPayloadError("too many provisional answers")
            return message, payload

        protocol.read = read_few
        if isinstance(connection.transport.get_protocol(), _Silent):
            connection.transport.set_protocol(protocol)
        connection.add_callback(partial(_silence, connection))
        try:
            return await super().start(connection)
        finally:
            del protocol.read


class _Silent(asyncio.Protocol):
    """A connection that waits for the next call; it is closed when anything comes. Its owner learns all else."""

    def __init__(self, owner: asyncio.Protocol, transport: asyncio.Transport) -> None:
        self._owner = owner
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Closes the connection."""
        self._transport.abort()

    def eof_received(self) -> bool | None:
        """Tells the owner."""
        return self._owner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells the owner."""
        self._owner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Tells the owner."""
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        """Tells the owner."""
        self._owner.resume_writing()


def _silence(connection: Any) -> None:
    """Takes away what reads a connection, which is given back after its answer."""
    transport = connection.transport
    if transport is not None and not transport.is_closing():
        transport.set_protocol(_Silent(connection.protocol, transport))
