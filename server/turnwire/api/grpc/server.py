"""The gRPC server: options, services, health and reflection."""

from collections.abc import Iterable
from datetime import timedelta

import grpc

from turnwire.api.gate import Gate
from turnwire.api.grpc.handlers import service_handler
from turnwire.api.grpc.health import SERVICE_NAME, Health
from turnwire.api.grpc.reflection import reflection_handlers
from turnwire.api.grpc.tls import ServerCertificates
from turnwire.api.grpc.tracing import CallTracing
from turnwire.api.grpc.unix_socket import SocketAccess, is_taken, socket_access, socket_path
from turnwire.api.grpc.wakeups import unblocked_wakeups
from turnwire.api.registry import Service
from turnwire.ports.telemetry.tracing import NO_TRACER, Tracer

MAX_METADATA_BYTES = 16_384
"""Of the headers of a call: a credential has 8 KiB at most."""


class GrpcServer:
    """Serves the contract on one address: `bind`, then `start`, then `stop`."""

    def __init__(
        self,
        max_message_bytes: int,
        certificates: ServerCertificates | None = None,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        """Args:
        max_message_bytes: Size of the largest request in bytes.
        certificates: For TLS; without them nothing is encrypted.
        tracer: Starts the spans of calls; without one, calls have no interceptor and cost nothing more.
        """
        interceptors = () if tracer is NO_TRACER else (CallTracing(tracer),)
        with unblocked_wakeups():
            self._server = grpc.aio.server(interceptors=interceptors, options=_options(max_message_bytes))
        self._health = Health()
        self._certificates = certificates

    def bind(self, listen: str, access: SocketAccess = SocketAccess()) -> str:  # noqa: B008 - is frozen
        """Binds the address. Callers can connect, but wait until `start`.

        Args:
            listen: host:port (port 0 selects a free port) or unix:path.
            access: Who may connect to a Unix socket.

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

        An open stream would delay this for the whole period, so close the feed first.
        """
        await self._server.stop(grace.total_seconds())


def _options(max_message_bytes: int) -> list[tuple[str, int]]:
    return [
        # otherwise a second server could silently bind the same port and get half of the calls
        ("grpc.so_reuseport", 0),
        # the defaults refuse calls when thousands of watchers reconnect at once
        ("grpc.server.max_pending_requests", 100_000),
        ("grpc.server.max_pending_requests_hard_limit", 200_000),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", -1),
        # room for the longest credential; by default gRPC refuses some metadata over 8 KiB by chance, all over 16 KiB
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
        # detects dead connections within half a minute, and lets clients do the same
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
    ]
