"""A server that asks its callers who they are, and a client for each of them."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc.aio import ClientCallDetails

from tests.support.clients.signed_in import bearer
from tests.support.servers.authority import AUDIENCE, ISSUER, IdentityProvider, jwks
from tests.support.servers.running import Client, running_server
from turnwire.app import Server
from turnwire.domain.principal import Role

PROVIDER = IdentityProvider()
"""Says of each caller whatever a test wants."""

_TOML = f"""
[auth]
methods = ["jwt"]
[auth.jwt]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
keys = "jwks.json"
"""


@contextlib.asynccontextmanager
async def server_of_tenants(folder: Path, toml: str = "") -> AsyncIterator[Server]:
    """Runs a server, as `running_server` does, that asks its callers who they are."""
    (folder / "jwks.json").write_text(jwks(PROVIDER))
    async with running_server(folder, _TOML + toml) as server:
        yield server


@contextlib.asynccontextmanager
async def connect_as(
    address: str, tenant: str, subject: str = "", role: Role = Role.WRITER, acting_for: str = ""
) -> AsyncIterator[Client]:
    """Opens a channel for a caller. An admin may act for another tenant."""
    token = PROVIDER.token(tenant=tenant, sub=subject or tenant, role=role.value)
    metadata = bearer(token, *([("turnwire-tenant", acting_for)] if acting_for else []))
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    interceptors = [_OfUnary(metadata), _OfStream(metadata)]
    async with grpc.aio.insecure_channel(address, options=options, interceptors=interceptors) as channel:
        yield Client(channel)


class _Credentials:
    def __init__(self, metadata: Sequence[tuple[str, str]]) -> None:
        self._metadata = metadata

    async def _intercept(
        self, continuation: Callable[[ClientCallDetails, Any], Awaitable[Any]], details: ClientCallDetails, request: Any
    ) -> Any:
        metadata = grpc.aio.Metadata(*(details.metadata or ()), *self._metadata)
        return await continuation(details._replace(metadata=metadata), request)


class _OfUnary(_Credentials, grpc.aio.UnaryUnaryClientInterceptor):
    intercept_unary_unary = _Credentials._intercept


class _OfStream(_Credentials, grpc.aio.UnaryStreamClientInterceptor):
    intercept_unary_stream = _Credentials._intercept
