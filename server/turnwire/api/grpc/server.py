"""The gRPC server: options, services, health and reflection."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple

import grpc
import structlog

from turnwire.api.admission.overload import Overload
from turnwire.api.gate import Gate
from turnwire.api.grpc.fair_server import fair_servers
from turnwire.api.grpc.handlers import service_handler
from turnwire.api.grpc.health import SERVICE_NAME, Health
from turnwire.api.grpc.reflection import reflection_handlers
from turnwire.api.grpc.tls import ServerCertificates
from turnwire.api.grpc.tracing import CallTracing
from turnwire.api.grpc.unix_socket import SocketAccess, is_taken, socket_access, socket_path
from turnwire.api.grpc.wakeups import unblocked_wakeups
from turnwire.api.registry import Service
from turnwire.domain.limits import Limits
from turnwire.ports.telemetry.tracing import NO_TRACER, Tracer

MAX_METADATA_BYTES = 16_384
"""Maximum size of the headers of a call: a credential has 8 KiB at most."""

LOOKAHEAD_BYTES = 16_384
"""Bytes of a request that a client may send before the server requests it. Nearly all requests are shorter; longer ones
take one more round trip. 20,000 calls that wait to start may have sent as much."""

READ_BUFFER_BYTES = 65_536
"""Size of gRPC's read buffer of a connection. By default it grows to 4 MiB for each one that sends fast, and stays for
as long as it is open."""

UNBEGUN_SECONDS = 600
"""Longest time that a call may wait for a server that is too busy to begin it."""

STOP_SECONDS = 5.0
"""Time that the end of cancelled calls is waited for. They end at once, unless gRPC has lost one."""

log = structlog.get_logger()


class GrpcLimits(NamedTuple):
    """Limits on the requests of clients."""

    limits: Limits
    max_message_bytes: int
    """Size of the largest request."""
    max_connections: int


class GrpcServer:
    """Serves the contract on one address: `bind`, then `start`, then `stop`."""

    def __init__(
        self,
        limits: GrpcLimits,
        overload: Overload,
        certificates: ServerCertificates | None = None,
        tracer: Tracer = NO_TRACER,
        *,
        shares_port: bool = False,
    ) -> None:
        """Args:
        limits: Limits on the requests of clients.
        overload: Bounds the calls of all listeners together.
        certificates: For TLS; without them nothing is encrypted.
        tracer: Starts the spans of calls; without one, calls have no interceptor and cost nothing more.
        shares_port: Whether other processes listen on the same address.
        """
        interceptors = () if tracer is NO_TRACER else (CallTracing(tracer),)
        fair = fair_servers(limits.limits.max_pending_calls, overload.refusals)
        with unblocked_wakeups(), fair:
            self._server = grpc.aio.server(interceptors=interceptors, options=_options(limits, shares_port))
        self._health = Health(overload)
        self._certificates = certificates

    def bind(self, listen: str, access: SocketAccess = SocketAccess()) -> str:  # noqa: B008 - is frozen
        """Binds the address. Callers can connect, but wait until `start`.

        Args:
            listen: host:port (port 0 selects a free port) or unix:path.
            access: The users that may connect to a Unix socket.

        Returns:
            The address with the actual port.

        Raises:
            OSError: the address is in use or cannot be bound, or the socket cannot have this group.
        """
        taken = OSError(
            f"cannot listen on {listen}: the address is in use or not an address of this machine; "
            "set another with --listen, TURNWIRE_LISTEN or server.listen"
        )
        if is_taken(listen):
            raise taken
        if listen.startswith("unix:") and not (folder := socket_path(listen).parent).is_dir():
            raise OSError(f"cannot listen on {listen}: the folder {folder} does not exist")
        try:
            with socket_access(listen, access):
                if self._certificates is None:
                    port = self._server.add_insecure_port(listen)
                else:
                    port = self._server.add_secure_port(listen, self._certificates.credentials())
        except RuntimeError as error:
            raise taken from error
        return listen if listen.startswith("unix:") else f"{listen.rpartition(':')[0]}:{port}"

    async def start(self, services: Iterable[Service], gate: Gate) -> None:
        """Starts serving the services through the gate, and the health and reflection services."""
        services = tuple(services)
        names = [service.descriptor.full_name for service in services]
        self._server.add_generic_rpc_handlers(tuple(service_handler(service, gate) for service in services))
        self._server.add_generic_rpc_handlers((self._health.start(names),))
        self._server.add_generic_rpc_handlers(reflection_handlers((*names, SERVICE_NAME), gate))
        await self._server.start()

    async def refuse_work(self) -> None:
        """Reports NOT_SERVING to health checks. Calls are still answered."""
        self._health.stop()

    async def stop(self, grace: timedelta) -> None:
        """Refuses new calls, and cancels running ones that do not end within the grace period. Idempotent.

        An open stream would delay this for the whole period, so close the feed first. Calls that gRPC does not end are
        left to the end of the process.
        """
        stopping = asyncio.ensure_future(self._server.stop(grace.total_seconds()))
        done, _ = await asyncio.wait((stopping,), timeout=grace.total_seconds() + STOP_SECONDS)
        if not done:
            log.error("calls_not_ended", seconds=grace.total_seconds() + STOP_SECONDS)
            stopping.cancel()


def _options(limits: GrpcLimits, shares_port: bool) -> list[tuple[str, int]]:
    return [
        # otherwise a second server could silently bind the same port and get half of the calls
        ("grpc.so_reuseport", int(shares_port)),
        ("grpc.max_allowed_incoming_connections", limits.max_connections),
        # a call that its client has reset counts until it is forgotten, so resetting does not allow more
        ("grpc.max_concurrent_streams", limits.limits.max_streams_per_connection),
        ("grpc.http.overload_protection", 1),
        # the defaults refuse calls when thousands of watchers reconnect at once
        ("grpc.server.max_pending_requests", limits.limits.max_pending_calls),
        ("grpc.server.max_pending_requests_hard_limit", limits.limits.max_pending_calls),
        # by default gRPC cancels calls that a busy server has not begun for 30 s, and their clients read CANCELLED, as
        # if they had done it; how many wait has a limit, and how long is for their deadlines to say
        ("grpc.server_max_unrequested_time_in_server", UNBEGUN_SECONDS),
        ("grpc.max_receive_message_length", limits.max_message_bytes),
        ("grpc.max_send_message_length", -1),
        # with its estimate of the line, gRPC would let clients send megabytes before a call has begun
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", LOOKAHEAD_BYTES),
        ("grpc.experimental.tcp_max_read_buffer_size", READ_BUFFER_BYTES),
        # enough for the longest credential; by default gRPC refuses some metadata over 8 KiB by chance, all over 16 KiB
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
        # a connection that does not finish its handshake does not count for long
        ("grpc.server_handshake_timeout_ms", 10_000),
        # detects dead connections within half a minute, and lets clients do the same
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
    ]
