"""Bodies of envelopes that were made to cost time: they are read before their caller is known."""

import time

import pytest
from google.rpc import code_pb2

from turnwire.api.gate import CallFailed
from turnwire.api.web.protocols.call import Serving, one_message

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
