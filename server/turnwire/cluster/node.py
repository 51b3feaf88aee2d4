"""This server as a node: what it owns, how calls reach the owners of their sessions, and how others reach it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import grpc
import msgspec
from msgspec import Struct

from turnwire.api.gate import CallFailed
from turnwire.api.grpc.tls import CLUSTER_KEYS, ServerCertificates
from turnwire.api.registry import Service
from turnwire.cluster.listing import Busy, ListEverywhere
from turnwire.cluster.ownership import Ownership, own_id
from turnwire.cluster.peers import GrpcPeers, PeerServer
from turnwire.cluster.routing import Lost, NotOwner, NotReached, Routed
from turnwire.cluster.sessions import NodeSessions
from turnwire.cluster.watches import AllSessions
from turnwire.core.environment import Environment
from turnwire.core.servers import PartRequest, ServerLost
from turnwire.core.use_cases.moving.shares import Shares
from turnwire.core.watches.parts import WatchParts
from turnwire.domain.errors import OutcomeUnknown, StorageError
from turnwire.domain.ids import new_id
from turnwire.domain.principal import Principal, Role
from turnwire.domain.shards import shard_of
from turnwire.ports.ownership import Locks

PART = "turnwire.Node.Part"
"""The method of nodes alone that tells of the sessions of one; see `core.watches.parts`."""

SHARE = "turnwire.Node.Share"
"""The method of nodes alone that brings the sessions of one out of an archive; see `core.use_cases.moving.shares`."""

PLACED = ("ses", "upl")
"""Prefixes of ids by which a shard is found."""

HANDOVER_SECONDS = 10.0
"""Maximum time in which a node that stops gives its shards away; those that are left go with its connection."""

FIRST_SHARDS_SECONDS = 2.0
"""Maximum time for which a node that starts waits for shards: others may have to give some away first."""

GONE_SECONDS = 0.5
"""Delay between the loss of the last shard and the end of all calls to the node: it may hang. A node that stops has
answered by then."""


_ENCODER = msgspec.msgpack.Encoder()
_PART_REQUESTS = msgspec.msgpack.Decoder(PartRequest)


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
        self._environment: Environment | None = None
        self._parts: WatchParts | None = None
        self.address = ""
        """The address where the other nodes reach it."""

    def bind(self, listen: str, advertise: str) -> None:
        """Takes the address to listen on, and the one that others know. Raises OSError: it is taken."""
        bound = self._server.bind(listen)
        self.address = advertise or bound

    def new_id(self, prefix: str) -> str:
        """Returns a new id; what callers make here lives here."""
        return own_id(new_id, prefix, self.owns) if prefix in PLACED else new_id(prefix)

    def owns(self, key: str) -> bool:
        """Returns whether this node owns the shard of an id."""
        return self._ownership is not None and self._ownership.is_mine(shard_of(key))

    def owner_of(self, shard: int) -> str | None:
        """Returns the address of the node that owns a shard; see `core.servers.Servers`."""
        return None if self._ownership is None else self._ownership.owner_of(shard)

    async def changed(self, seconds: float) -> None:
        """Returns when the owner of a shard may have changed, at the latest after some time."""
        if self._ownership is not None:
            await self._ownership.changed(seconds)

    async def share(self, address: str, principal: Principal, request: bytes) -> AsyncGenerator[bytes]:
        """Has another node carry out its share of an import; see `core.servers.Servers`."""
        try:
            async with contextlib.aclosing(self._peers.stream(address, SHARE, principal, request)) as reports:
                async for report in reports:
                    yield report
        except (NotReached, NotOwner, Lost, OutcomeUnknown):
            raise ServerLost from None
        except CallFailed as failed:
            if failed.status.code != grpc.StatusCode.UNAVAILABLE.value[0]:
                raise
            raise ServerLost from None

    def watch_all(self, tenant: str, request: PartRequest) -> AllSessions:
        """Watches all sessions of a tenant; see `core.servers.Servers`."""
        assert self._ownership is not None and self._environment is not None and self._parts is not None
        parts, principal = self._parts, Principal(tenant=tenant, subject="", role=Role.READER)

        def part(address: str) -> AsyncGenerator[bytes]:
            if not address:
                return parts.part(tenant, request)
            return self._peers.stream(address, PART, principal, _ENCODER.encode(request))

        environment = self._environment
        store, timeline = environment.store.of(tenant), environment.store.moment(tenant).timeline
        return AllSessions(tenant, environment.feed, store, self._ownership, part, timeline=timeline)

    async def start(
        self,
        locks: Locks,
        sessions: NodeSessions,
        environment: Environment,
        parts: WatchParts,
        *,
        shares: Shares,
        services: Sequence[Service],
        busy: Busy,
        on_failure: Callable[[StorageError], None],
    ) -> tuple[Service, ...]:
        """Takes shards, and carries out calls of other nodes.

        Args:
            locks: Locks of the connection on which this node writes.
            sessions: Operations on the sessions of shards.
            environment: Ports.
            parts: Tell watches of all sessions of those here.
            shares: Bring the sessions here that imports at other nodes have.
            services: Carry out calls on this node.
            busy: Returns those of some sessions whose turns have not all ended, whichever node has them.
            on_failure: Called when the node can neither own shards nor give them away any more.

        Returns:
            The services for callers: calls go to the owners of their sessions.
        """
        ownership = self._ownership = Ownership(self.address, locks, sessions, on_gone=self._note_gone)
        self._environment, self._parts = environment, parts

        def part(principal: Principal, data: bytes) -> AsyncGenerator[bytes]:
            return parts.part(principal.tenant, _PART_REQUESTS.decode(data))

        await self._server.start(services, ownership.is_mine, {PART: part, SHARE: shares.serve})

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

    def _routed(self, service: Service, owners: Ownership, busy: Busy) -> Routed:
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

    def _note_gone(self, address: str) -> None:
        asyncio.get_running_loop().call_later(GONE_SECONDS, self._drop, address)

    def _drop(self, address: str) -> None:
        if self._ownership is not None and not self._ownership.is_owner(address):
            self._peers.drop(address)
