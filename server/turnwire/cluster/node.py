"""This server as a node: what it owns, how calls reach the owners of their sessions, and how others reach it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import grpc
from msgspec import Struct

from opencode.event.event_pb2 import DELTA_MODE_NONE, DELTA_MODE_UNSPECIFIED, WatchEventsRequest
from turnwire.api.grpc.tls import CLUSTER_KEYS, ServerCertificates
from turnwire.api.registry import Service
from turnwire.api.services.events import EventService
from turnwire.cluster.listing import ListEverywhere
from turnwire.cluster.ownership import Ownership, own_id
from turnwire.cluster.peers import GrpcPeers, PeerServer
from turnwire.cluster.routing import Routed
from turnwire.cluster.sessions import NodeSessions
from turnwire.cluster.watches import AllSessions
from turnwire.core.environment import Environment
from turnwire.core.watches.parts import WatchParts
from turnwire.core.watches.watch import Batch
from turnwire.domain.errors import StorageError
from turnwire.domain.ids import new_id
from turnwire.domain.principal import Principal, Role
from turnwire.domain.shards import shard_of
from turnwire.ports.ownership import Locks

WATCH_EVENTS = "opencode.event.EventService.WatchEvents"
"""Between nodes, this method without a session is the part of one node."""

PLACED = ("ses", "upl")
"""Prefixes of ids by which a shard is found."""

HANDOVER_SECONDS = 10.0
"""How long a node that stops gives its shards away; those that are left go with its connection."""

FIRST_SHARDS_SECONDS = 2.0
"""How long a node that starts waits for shards: others may have to give some away first."""

GONE_SECONDS = 0.5
"""Delay between the loss of the last shard and the end of all calls to the node: it may hang. A node that stops has
answered by then."""


class NodeCertificates(Struct, frozen=True):
    """Files of this node (PEM), with which all nodes know each other. Each new connection reads them again."""

    cert: Path
    key: Path
    ca: Path

    def at_listener(self) -> grpc.ServerCredentials:
        """Returns the credentials of the listener, which follow the files. Raises UnusableCertificates."""
        return ServerCertificates(self.cert, self.key, self.ca, CLUSTER_KEYS).credentials()

    def at_client(self) -> grpc.ChannelCredentials:
        """Returns the credentials of a connection that begins. Raises OSError: a file cannot be read."""
        cert, key, ca = (file.read_bytes() for file in (self.cert, self.key, self.ca))
        return grpc.ssl_channel_credentials(ca, key, cert)


class Node:
    """One of several servers on one database. Used on the event loop only."""

    def __init__(self, certificates: NodeCertificates | None) -> None:
        """Takes what identifies this node to the others; None on a Unix socket or the loopback interface.

        Raises:
            UnusableCertificates: a file cannot be read, or they do not work together.
        """
        self._server = PeerServer(None if certificates is None else certificates.at_listener())
        self._peers = GrpcPeers(None if certificates is None else certificates.at_client)
        self._ownership: Ownership | None = None
        self._task: asyncio.Task[None] | None = None
        self.address = ""
        """The address where the other nodes reach it."""

    def bind(self, listen: str, advertise: str) -> None:
        """Takes the address to listen on, and the one that others know. Raises OSError: it is taken."""
        bound = self._server.bind(listen)
        self.address = advertise or bound

    def new_id(self, prefix: str) -> str:
        """Returns a new id; what callers make here lives here."""
        return own_id(new_id, prefix, self._owns) if prefix in PLACED else new_id(prefix)

    def has_all_sessions(self) -> bool:
        """Returns whether calls of all sessions are carried out here."""
        return self._ownership is not None and self._ownership.owns_all()

    def watch_all(self, environment: Environment, parts: WatchParts, tenant: str, include_deltas: bool) -> AllSessions:
        """Watches all sessions of a tenant, with or without deltas; raises as `Feed.subscribe` does.

        Args:
            environment: Ports.
            parts: The parts of this node.
            tenant: Whose sessions.
            include_deltas: False omits deltas.
        """
        assert self._ownership is not None

        def part(address: str) -> AsyncGenerator[bytes]:
            if not address:
                return parts.part(tenant, include_deltas=include_deltas)
            principal = Principal(tenant=tenant, subject="", role=Role.READER)
            request = WatchEventsRequest(delta_mode=DELTA_MODE_UNSPECIFIED if include_deltas else DELTA_MODE_NONE)
            return self._peers.stream(address, WATCH_EVENTS, principal, request.SerializeToString())

        store = environment.store.of(tenant)
        return AllSessions(tenant, environment.feed, store, self._ownership, part)

    async def start(
        self,
        locks: Locks,
        sessions: NodeSessions,
        parts: WatchParts,
        services: Sequence[Service],
        *,
        busy: Callable[[], Awaitable[frozenset[str]]],
        on_failure: Callable[[StorageError], None],
    ) -> tuple[Service, ...]:
        """Takes shards, and carries out calls of other nodes.

        Args:
            locks: Locks of the connection on which this node writes.
            sessions: Operations on the sessions of shards.
            parts: Tell watches at other nodes of the sessions here.
            services: Carry out calls on this node.
            busy: Returns the ids of the sessions whose turns have not all ended, also those of other nodes.
            on_failure: Called when the node can neither own shards nor give them away any more.

        Returns:
            The services for callers: calls go to the owners of their sessions.
        """
        ownership = self._ownership = Ownership(self.address, locks, sessions, on_gone=self._note_gone)
        await self._server.start([_for_nodes(service, parts) for service in services], ownership.is_mine)

        async def run() -> None:
            try:
                await ownership.run()
            except Exception as error:
                on_failure(StorageError(f"the node does not know what it owns: {error!r}"))
                raise

        self._task = asyncio.create_task(run(), name="ownership")
        ends_at = asyncio.get_running_loop().time() + FIRST_SHARDS_SECONDS
        while not ownership.has_shards() and asyncio.get_running_loop().time() < ends_at:
            await ownership.changed(FIRST_SHARDS_SECONDS)
        return tuple(Service(one.descriptor, self._routed(one, ownership, busy)) for one in services)

    def _routed(self, service: Service, owners: Ownership, busy: Callable[[], Awaitable[frozenset[str]]]) -> Routed:
        routed: Any = Routed(service.descriptor, service.servicer, owners, self._peers)
        if service.descriptor.full_name == "opencode.session.SessionService":
            routed.ListSessions = ListEverywhere(routed.ListSessions, routed.GetSession, owners, busy)
        return cast(Routed, routed)

    async def give_all(self) -> None:
        """Gives all shards away: their turns go on with other nodes. Calls are still sent there. Idempotent."""
        if self._ownership is None or self._task is None:
            return
        stopping = asyncio.create_task(self._ownership.stop(), name="handover")
        await asyncio.wait({stopping, self._task}, timeout=HANDOVER_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for task in (stopping, self._task):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        self._task = None

    async def aclose(self) -> None:
        """Ends all calls to and from other nodes."""
        await self._server.stop(0)
        await self._peers.aclose()

    def _owns(self, name: str) -> bool:
        return self._ownership is not None and self._ownership.is_mine(shard_of(name))

    def _note_gone(self, address: str) -> None:
        asyncio.get_running_loop().call_later(GONE_SECONDS, self._drop, address)

    def _drop(self, address: str) -> None:
        if self._ownership is not None and not self._ownership.is_owner(address):
            self._peers.drop(address)


class _Events:
    """The servicer of events for other nodes: all sessions are those of this one."""

    def __init__(self, servicer: EventService, parts: WatchParts) -> None:
        self._servicer, self._parts = servicer, parts

    def WatchEvents(self, principal: Principal, request: WatchEventsRequest) -> AsyncGenerator[Batch]:
        if request.session_id:
            return self._servicer.WatchEvents(principal, request)
        include_deltas = request.delta_mode != DELTA_MODE_NONE
        return self._parts.part(principal.tenant, include_deltas=include_deltas)

    def __getattr__(self, name: str) -> object:
        return getattr(self._servicer, name)


def _for_nodes(service: Service, parts: WatchParts) -> Service:
    """Returns a service as other nodes call it."""
    if isinstance(service.servicer, EventService):
        return Service(service.descriptor, _Events(service.servicer, parts))
    return service
