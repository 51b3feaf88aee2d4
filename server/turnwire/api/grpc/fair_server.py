"""Takes calls from gRPC as they arrive, and starts them in fair order of networks and connections.

gRPC keeps pending calls in one queue, in order of arrival, and its asyncio layer takes one of them after a call has
started. So a call would wait for thousands that another client sent before, and be rejected when they fill that queue.
Here many are taken at a time, into a fair queue; above its limit, the newest call of the connection with the most
pending calls is rejected. A call whose client has left keeps its place until its turn, and ends then. (grpcio 1.85,
`aio/server.pyx.pxi`: `_server_main_loop` begins what `_make_request_call_future` returns.)
"""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any

import grpc
import structlog
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # has no stubs
from grpc_status import rpc_status

from turnwire.api.admission.fair_queue import PendingCalls
from turnwire.api.admission.requests import RETRY_AFTER
from turnwire.api.refusals import Refusals
from turnwire.api.wire.status import status_of
from turnwire.domain.errors import ShuttingDown, TooManyCalls

AT_ONCE = 256
"""Calls requested from gRPC at a time, and thus the maximum taken in one round of the event loop."""

_FEW = 32
"""Calls that are refused at the end, in one round of the event loop. Each takes up to 0.2 ms."""

_NAMES = (
    *("AioServer._make_request_call_future", "AioServer._request_call", "AioServer.is_running", "_RequestCallError"),
    *("_ServicerContext.peer", "_send_error_status_from_server", "SendInitialMetadataOperation", "ExecuteBatchError"),
)
"""Names of gRPC that are used here, although gRPC does not promise to keep them."""

_SERVER: Any = getattr(cygrpc, "AioServer", object)

log = structlog.get_logger()


def when_ended(done: Callable[[], None]) -> None:
    """Runs `done` when the call of the current task has ended: its response is sent, or its client has left.

    What is given to `add_done_callback` of the context would keep the call: it refers to the call, which refers to it,
    and gRPC drops neither. The objects of a call would stay until a full garbage collection.
    """
    if (task := asyncio.current_task()) is not None:
        task.add_done_callback(lambda _: done())


class FairServer(_SERVER):  # type: ignore[misc]
    """gRPC's server, which is given the calls in another order."""

    def __init__(self, max_pending: int, refusals: Refusals, *rest: Any) -> None:
        """Takes how many calls may wait, what logs calls that are refused, and what gRPC's server takes."""
        super().__init__(*rest)
        self._loop_of_calls = asyncio.get_running_loop()
        self._pending = PendingCalls[Any](max_pending)
        full = TooManyCalls.at("limits.max_pending_calls", max_pending, RETRY_AFTER)
        self._full, self._stopping = (rpc_status.to_status(status_of(error)) for error in (full, ShuttingDown()))
        self._refusals = refusals
        self._takers = set[asyncio.Task[None]]()
        """Tasks that each request calls from gRPC, one after the other. They end when gRPC stops."""
        self._refusing = set[asyncio.Task[None]]()
        """Tasks that each send one status. They end with their calls."""

    def _make_request_call_future(self, method: bytes | None) -> Any:
        """Returns a future of the call that begins next. It raises what gRPC raises when it stops."""
        if method is not None:  # we have none of those that are registered by their names
            return super()._make_request_call_future(method)
        if not self._takers:
            request_call = super()._request_call
            self._takers = {asyncio.create_task(self._take(request_call)) for _ in range(AT_ONCE)}
        return self._pending.next()

    async def _take(self, request_call: Callable[[], Any]) -> None:
        while True:
            try:
                call = await request_call()
            except Exception as error:
                if isinstance(error, cygrpc._RequestCallError) and self.is_running():
                    continue  # this one call has failed
                await self._end(error)
                return
            try:
                self._note(call)
            except Exception as error:  # who calls learns that it was cancelled; the others come
                log.error("call_not_started", exc_info=error)
            del call  # or it would be kept until the next one comes

    async def _end(self, error: Exception) -> None:
        if self._pending.has_ended:  # the first that learns it refuses the calls of all
            return
        calls = self._pending.end(error)
        while self._pending.count:
            for call in itertools.islice(calls, _FEW):
                self._refuse(call, self._stopping)
            await asyncio.sleep(0)

    def _note(self, call: Any) -> None:
        if self._pending.has_ended:
            self._refuse(call, self._stopping)
            return
        connection = cygrpc._ServicerContext(call, None, None, self._loop_of_calls).peer()
        surplus = self._pending.add(connection, call)
        if surplus is not None:
            connection, call = surplus
            self._refuse(call, self._full)
            self._refusals.log("none", "RESOURCE_EXHAUSTED", "calls that wait to begin", connection)

    def _refuse(self, call: Any, status: grpc.Status) -> None:
        task = asyncio.create_task(self._send(call, status))
        self._refusing.add(task)
        task.add_done_callback(self._refusing.discard)

    async def _send(self, call: Any, status: grpc.Status) -> None:
        begin = cygrpc.SendInitialMetadataOperation((), 0)
        with contextlib.suppress(cygrpc.ExecuteBatchError):  # the caller has left
            await cygrpc._send_error_status_from_server(
                call, status.code.value[0], status.details, status.trailing_metadata, begin, self._loop_of_calls
            )


@contextlib.contextmanager
def fair_servers(max_pending: int, refusals: Refusals) -> Iterator[None]:
    """Makes servers of gRPC that are created in the body start calls in fair order; takes what `FairServer` takes.

    With a version of gRPC that lacks the names this needs, calls start in order of arrival, and the log says so.
    """
    module: Any = cygrpc
    if missing := missing_names(module):
        log.warning("calls_without_fair_queue", missing=missing)
        yield
        return
    before = module.AioServer
    module.AioServer = partial(FairServer, max_pending, refusals)
    try:
        yield
    finally:
        module.AioServer = before


def missing_names(module: Any) -> list[str]:
    """Returns what gRPC's compiled module lacks of what is needed here."""

    def is_there(name: str) -> bool:
        try:
            attrgetter(name)(module)
        except AttributeError:
            return False
        return True

    return [name for name in _NAMES if not is_there(name)]
