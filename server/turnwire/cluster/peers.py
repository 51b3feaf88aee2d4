"""Calls between nodes: gRPC with the public methods, as bytes, behind a listener of their own.

The node where a caller is connected admits it and sends the principal along. The owner carries the call out, or says
that it is no owner: it never sends a call on. Clients of this listener are trusted, so it is on a Unix socket, on the
loopback interface, or behind TLS on both sides.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import grpc
import msgspec
import structlog
from grpc_status import rpc_status

from turnwire.api.admission.responses import Answer
from turnwire.api.gate import CallFailed, StreamingMethod, UnaryMethod
from turnwire.api.grpc.handlers import end_with, to_bytes
from turnwire.api.grpc.unix_socket import SocketAccess, socket_access
from turnwire.api.registry import Service
from turnwire.api.services import STREAM_OPEN
from turnwire.api.wire.status import internal_status, reason_of, status_of
from turnwire.cluster.routing import PLACES, Lost, NotOwner, NotReached, can_repeat, key_of
from turnwire.core.watches.unmade import Unmade
from turnwire.domain.errors import DomainError, OutcomeUnknown, SessionMoving
from turnwire.domain.ids import new_id
from turnwire.domain.principal import Principal
from turnwire.domain.shards import shard_of
from turnwire.event_loop.owner import own

PRINCIPAL = "turnwire-principal-bin"
"""Metadata of a call: the principal for whom it acts."""

NOT_OWNER = "turnwire-not-owner"
"""Trailing metadata of a call that was not carried out, since the node does not own its session."""

OPEN = "turnwire-open"
"""Initial metadata of a stream that has begun and has nothing to say yet."""

CONNECT_SECONDS = 1.0
"""Timeout of a connection to a node; after it, the node counts as not reached."""

OPTIONS: Sequence[tuple[str, Any]] = (
    ("grpc.max_receive_message_length", -1),  # bounded where the caller is
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 1_000),  # a node that is cut off is silent
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.so_reuseport", 0),
)

log = structlog.get_logger()


class GrpcPeers:
    """Calls other nodes. Implements `cluster.routing.Peers`. Used on the event loop only."""

    def __init__(self, credentials: Callable[[], grpc.ChannelCredentials] | None = None) -> None:
        """Takes what returns credentials for a new connection, or raises OSError; None without certificates."""
        self._credentials = credentials
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._closing = set[asyncio.Task[None]]()

    async def unary(self, address: str, method: str, principal: Principal, request: bytes) -> bytes:
        """Has a node carry out a call; see `Peers`."""
        channel = await self._ready(address)
        call: Callable[..., Awaitable[bytes]] = channel.unary_unary(_path(method), None, None)
        try:
            return await call(request, metadata=_metadata(principal))
        except grpc.aio.AioRpcError as error:
            raise _outcome(error) from None
        except asyncio.CancelledError:
            raise _cancelled() from None

    async def stream(self, address: str, method: str, principal: Principal, request: bytes) -> AsyncGenerator[bytes]:
        """Has a node carry out a stream; see `Peers`."""
        channel = await self._ready(address)
        call: Any = channel.unary_stream(_path(method), None, None)(request, metadata=_metadata(principal))
        del request
        try:
            if any(key == OPEN for key, _ in await call.initial_metadata()):
                yield STREAM_OPEN
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as error:
            raise _outcome(error) from None
        except asyncio.CancelledError:
            raise _cancelled() from None
        finally:
            call.cancel()

    def drop(self, address: str) -> None:
        """Ends the calls to a node that has no sessions any more."""
        if (channel := self._channels.pop(address, None)) is not None:
            closing = asyncio.create_task(channel.close(None), name="peer gone")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """Ends all calls and connections."""
        channels = list(self._channels.values())
        self._channels.clear()
        for channel in channels:
            await channel.close(None)

    async def _ready(self, address: str) -> grpc.aio.Channel:
        """Returns a connection to a node. Raises NotReached."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._open(address)
        if channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return channel
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await channel.channel_ready()
        except grpc.aio.UsageError:  # closed meanwhile, with the node
            raise NotReached from None
        except TimeoutError:
            if self._channels.get(address) is channel:  # a node at another address may have come in its place
                del self._channels[address]
                await channel.close(None)
            raise NotReached from None
        return channel

    def _open(self, address: str) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(address, OPTIONS)
        try:
            return grpc.aio.secure_channel(address, self._credentials(), OPTIONS)
        except OSError as error:
            log.error("node_not_reached", address=address, problem=str(error))
            raise NotReached from None


def _path(method: str) -> str:
    service, _, name = method.rpartition(".")
    return f"/{service}/{name}"


def _metadata(principal: Principal) -> tuple[tuple[str, bytes], ...]:
    return ((PRINCIPAL, msgspec.json.encode(principal)),)


def _cancelled() -> BaseException:
    """Returns what a cancelled call means: its caller was cancelled, or the connection was closed."""
    task = asyncio.current_task()
    return asyncio.CancelledError() if task is not None and task.cancelling() else Lost()


def _outcome(error: grpc.aio.AioRpcError) -> Exception:
    """Returns what a failed call means: what the owner answered has details, and what gRPC itself says has none."""
    trailing: Any = error.trailing_metadata()
    if NOT_OWNER in trailing:
        return NotOwner()
    status = rpc_status.from_call(error)  # type: ignore[arg-type]  # has what of a call is needed
    if status is None:
        return Lost()
    return OutcomeUnknown() if reason_of(status) == OutcomeUnknown.reason else CallFailed(status)


class PeerServer(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """The listener for calls of other nodes."""

    def __init__(self, credentials: grpc.ServerCredentials | None) -> None:
        """Takes what identifies this listener, and demands the same of callers; None on a Unix socket or loopback."""
        self._methods: Mapping[str, UnaryMethod | StreamingMethod] = {}
        self._streams: Mapping[str, Callable[[Principal, bytes], AsyncGenerator[bytes]]] = {}
        self._is_mine: Callable[[int], bool] = lambda _: False
        self._credentials = credentials
        self._server = grpc.aio.server(options=OPTIONS)
        self._server.add_generic_rpc_handlers((self,))

    def bind(self, listen: str) -> str:
        """Takes an address, and returns it with the actual port. Raises OSError: it is taken."""
        try:
            with socket_access(listen, SocketAccess()):  # who reaches it acts for any tenant
                port = (
                    self._server.add_insecure_port(listen)
                    if self._credentials is None
                    else self._server.add_secure_port(listen, self._credentials)
                )
        except RuntimeError as error:
            problem = "the address is in use or not an address of this machine"
            raise OSError(f"cluster.listen: cannot listen on {listen}: {problem}") from error
        return listen if listen.startswith("unix:") else f"{listen.rpartition(':')[0]}:{port}"

    async def start(
        self,
        services: Sequence[Service],
        is_mine: Callable[[int], bool],
        streams: Mapping[str, Callable[[Principal, bytes], AsyncGenerator[bytes]]],
    ) -> None:
        """Begins to carry out calls.

        Args:
            services: Carry out calls on this node.
            is_mine: Returns whether this node owns a shard.
            streams: Methods of nodes alone, by name: what a node answers about itself.
        """
        self._methods = {_path(method.name): method for service in services for method in service.methods().values()}
        self._streams = {_path(name): stream for name, stream in streams.items()}
        self._is_mine = is_mine
        await self._server.start()

    async def stop(self, grace_seconds: float) -> None:
        """Refuses new calls, and cancels those that are open after some time."""
        await self._server.stop(grace_seconds)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Returns what handles a method."""
        if (stream := self._streams.get(handler_call_details.method)) is not None:
            return grpc.unary_stream_rpc_method_handler(_handler(handler_call_details.method, stream))
        method = self._methods.get(handler_call_details.method)
        if isinstance(method, UnaryMethod):
            return grpc.unary_unary_rpc_method_handler(self._unary(method))
        if isinstance(method, StreamingMethod):
            return grpc.unary_stream_rpc_method_handler(_handler(method.name, partial(self._answers, method)))
        return None

    def _unary(self, method: UnaryMethod) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def handle(data: bytes, context: Any) -> bytes:
            try:
                principal = _principal(context)
                request = self._request(method, principal, data)
                with _told_apart(method.name, request):
                    return _bytes_of(await method.run(principal, request))
            except Exception as error:
                return _end(method.name, context, error)

        return handle

    async def _answers(self, method: StreamingMethod, principal: Principal, data: bytes) -> AsyncGenerator[Answer]:
        request = self._request(method, principal, data)
        answers = method.run(principal, request)
        del data
        async with contextlib.aclosing(answers):
            with _told_apart(method.name, request):
                first = await anext(answers, None)
            del request
            if first is not None:
                yield first
            async for answer in answers:
                yield answer

    def _request(self, method: UnaryMethod | StreamingMethod, principal: Principal, data: bytes) -> Any:
        """Returns the request. Raises NotOwner: the session is not of this node."""
        request = method.parse(data)
        key = key_of(principal, request, PLACES[method.name])
        if key and not self._is_mine(shard_of(key)):
            raise NotOwner
        return request


def _handler(
    name: str, stream: Callable[[Principal, bytes], AsyncGenerator[Answer] | AsyncGenerator[bytes]]
) -> Callable[[bytes, Any], Awaitable[None]]:
    """Returns what handles a method with many answers."""

    async def handle(data: bytes, context: Any) -> None:
        try:
            answers = stream(_principal(context), data)
            del data
            async with contextlib.aclosing(answers):
                async for answer in answers:
                    await _send(context, answer)
        except Exception as error:
            _end(name, context, error)

    return handle


@contextlib.contextmanager
def _told_apart(method: str, request: Any) -> Iterator[None]:
    """Lets a call that the next owner can carry out be one that this node did not carry out."""
    try:
        yield
    except SessionMoving:
        if not can_repeat(method, request):
            raise
        raise NotOwner from None


async def _send(context: Any, answer: Any) -> None:
    if answer is STREAM_OPEN:
        await context.send_initial_metadata(((OPEN, "1"),))
    else:
        await context.write(_bytes_of(answer))


def _principal(context: Any) -> Principal:
    """Returns for whom a call acts; what it begins is work of that tenant."""
    data = next(value for key, value in context.invocation_metadata() if key == PRINCIPAL)
    principal = msgspec.json.decode(data, type=Principal)
    own(f"peer {principal.tenant} {principal.subject}")
    return principal


def _bytes_of(answer: Answer) -> bytes:
    return answer.make() if isinstance(answer, Unmade) else to_bytes(answer)


def _end(method: str, context: Any, error: Exception) -> bytes:
    """Gives a call that failed its status; its caller's node logs it. Returns the answer that is never sent."""
    match error:
        case NotOwner():
            context.set_code(grpc.StatusCode.UNAVAILABLE)
            context.set_trailing_metadata(((NOT_OWNER, "1"),))
            return b""
        case CallFailed():
            return end_with(context, error)
        case DomainError():
            return end_with(context, CallFailed(status_of(error)))
    if context.done() or isinstance(error, grpc.aio.InternalError):  # the caller's node is gone
        return b""
    request_id = new_id("rpc")
    log.error("rpc_failed", method=method, request_id=request_id, exc_info=error)
    return end_with(context, CallFailed(internal_status(request_id)))
