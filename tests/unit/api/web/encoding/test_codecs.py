"""Long requests in JSON, which are read beside the event loop."""

import asyncio
import time
from typing import cast

from opencode.message.message_pb2 import DESCRIPTOR, SendMessageRequest
from tests.support.fakes.identity import FakeCaller, KnownCallers, sent, some_load
from turnwire.api.gate import Gate, UnaryMethod
from turnwire.api.registry import Service
from turnwire.api.web.encoding.codecs import routes_of
from turnwire.domain.principal import Principal, Role

WRITER = Principal(tenant="acme", subject="eve", role=Role.WRITER)
PARTS = 5_000
LONGEST_WAIT_SECONDS = 0.1


class _Anything:
    """Carries out all methods of a service."""

    def __getattr__(self, _name: str) -> object:
        return self._answer

    async def _answer(self, _principal: Principal, request: SendMessageRequest) -> bytes:
        return str(len(request.parts)).encode()


async def test_a_long_request_does_not_hold_the_event_loop() -> None:
    """A megabyte of small values takes a second to read, in which other calls go on."""
    service = Service(DESCRIPTOR.services_by_name["MessageService"], _Anything())
    method = cast(UnaryMethod, routes_of([service])["/opencode.message.MessageService/SendMessage"].json)
    data = b'{"parts":[' + b"{}," * (PARTS - 1) + b"{}]}"
    gate = Gate(KnownCallers({"Bearer eve": WRITER}), some_load())
    call = asyncio.create_task(gate.unary(method, sent(data), FakeCaller("Bearer eve")))
    longest = 0.0
    while not call.done():
        before = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - before)
    assert await call == str(PARTS).encode()
    assert longest < LONGEST_WAIT_SECONDS
