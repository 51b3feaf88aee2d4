"""Bodies of envelopes that were made to cost time, and calls that are carried out while their caller is there."""

import asyncio
import contextlib
import gc
import time
import weakref
from typing import Any

import pytest
from google.rpc import code_pb2

from turnwire.api.gate import CallFailed
from turnwire.api.web.exchange import Exchange, shared_bodies
from turnwire.api.web.protocols.call import Serving, check_announced, one_message, while_connected

MANY = 4 * 2**20
QUICK_SECONDS = 0.5


async def test_a_body_of_empty_envelopes_is_refused_at_once() -> None:
    """Listing all of them would hold the event loop for seconds, and take gigabytes."""
    serving = Serving(None, MANY, lambda: False)  # type: ignore[arg-type]
    started = time.thread_time()
    with pytest.raises(CallFailed) as failed:
        await one_message(serving, bytes(MANY), "identity")
    assert failed.value.status.code == code_pb2.UNIMPLEMENTED
    assert time.thread_time() - started < QUICK_SECONDS


class Noting:
    """A gate that nothing reaches."""

    def __init__(self) -> None:
        self.codes = list[str]()

    def refused(self, code: str, _cause: str, _address: str) -> None:
        """Keeps the code."""
        self.codes.append(code)


class Staying:
    """A caller that does not leave."""

    async def until_gone(self) -> None:
        """Never returns."""
        await asyncio.Event().wait()


class Answer:
    """The answer that a call makes, and that is refused."""


async def test_a_call_that_is_refused_leaves_nothing_for_the_garbage_collector() -> None:
    """Large answers that nobody reads would stay in memory if they found no place."""
    made = list[weakref.ref[Answer]]()

    async def call() -> None:
        made.append(weakref.ref(Answer()))
        await asyncio.sleep(0)
        raise LookupError

    caller: Any = Staying()
    gc.disable()
    try:
        with contextlib.suppress(LookupError):
            await while_connected(caller, call())
        assert made[0]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("announced", "is_of_method", "code"),
    [
        ("110", False, None),
        ("111", False, code_pb2.RESOURCE_EXHAUSTED),
        ("111", True, code_pb2.INVALID_ARGUMENT),
        ("many", False, None),
    ],
)
def test_what_says_that_it_is_too_large_is_refused(announced: str, is_of_method: bool, code: int | None) -> None:
    """With the code of the limit, and it is noted; what the protocol adds is no part of the message."""
    unused: Any = None
    scope = {"method": "POST", "path": "/", "headers": [(b"content-length", announced.encode())]}
    exchange = Exchange(scope, unused, unused, shared_bodies(1))
    gate = Noting()
    serving = Serving(gate, 100, lambda: False, is_of_method)  # type: ignore[arg-type]
    found = None
    try:
        check_announced(serving, exchange, 10)
    except CallFailed as failed:
        found = failed.status.code
    assert found == code
    assert gate.codes == ([] if code is None else [code_pb2.Code.Name(code)])
