"""Clients over TLS and clients with credentials."""

import contextlib
from collections.abc import AsyncIterator

import grpc

from tests.support.servers.authority import Pair
from tests.support.servers.running import Client


def bearer(token: str, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns the metadata of a call with a token."""
    return (("authorization", f"Bearer {token}"), *more)


@contextlib.asynccontextmanager
async def connect_tls(address: str, ca: bytes, pair: Pair | None = None) -> AsyncIterator[Client]:
    """Opens an encrypted channel of its own connection.

    Args:
        address: Where the server listens.
        ca: The authority of the server's certificate.
        pair: The client's certificate and key.
    """
    credentials = grpc.ssl_channel_credentials(ca, *((pair.key, pair.cert) if pair else ()))
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
        yield Client(channel)
