"""A server whose callers say who they are, and a client for each of them."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc.aio import ClientCallDetails

from tests.support.servers.running import Client, running_server
from turnwire import app
from turnwire.app import Server
from turnwire.domain.errors import Unauthenticated
from turnwire.domain.principal import Principal, Role
from turnwire.ports.identity import Caller


class BelievedCallers:
    """Takes callers for who they say they are: the credentials are tenant, subject and role, joined by "/"."""

    offered: Sequence[str] = ()

    def recall(self, caller: Caller) -> Principal:
        """Returns the principal."""
        if caller.authorization is None:
            raise Unauthenticated("no credentials", missing=True)
        tenant, subject, role = caller.authorization.split("/")
        return Principal(tenant=tenant, subject=subject, role=Role(role))

    async def verify(self, caller: Caller) -> Principal:
        """Returns the principal."""
        return self.recall(caller)


@contextlib.asynccontextmanager
async def server_of_tenants(folder: Path, toml: str = "") -> AsyncIterator[Server]:
    """Runs a server, as `running_server` does, that believes its callers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "Everybody", BelievedCallers)
        async with running_server(folder, toml) as server:
            yield server


@contextlib.asynccontextmanager
async def connect_as(
    address: str, tenant: str, subject: str = "", role: Role = Role.WRITER, acting_for: str = ""
) -> AsyncIterator[Client]:
    """Opens a channel for a caller. An admin may act for another tenant."""
    metadata = (("authorization", f"{tenant}/{subject}/{role}"),)
    if acting_for:
        metadata = (*metadata, ("turnwire-tenant", acting_for))
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
