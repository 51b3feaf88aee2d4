"""gRPC's thread is never held up by a loop that reads what it wrote too slowly."""

import subprocess
import sys

import pytest
from grpc._cython import cygrpc
from structlog.testing import capture_logs

from turnwire.api.grpc.wakeups import unblocked_wakeups, wakeup_pair

STARTED = """
import asyncio
from datetime import timedelta
from turnwire.api.grpc import wakeups
from turnwire.api.admission.overload import Overload
from turnwire.api.grpc.server import GrpcLimits, GrpcServer
from turnwire.domain.limits import Limits

async def main():
    server = GrpcServer(GrpcLimits(Limits(), 1000, 10), Overload(Limits(), 1000))
    server.bind("127.0.0.1:0")
    await server.start((), None)
    await server.stop(timedelta())

asyncio.run(main())
print(wakeups.WakeupReader.reads)
"""


def test_one_read_empties_the_pair() -> None:
    """However many bytes wait and however few are asked for, so the writer has room again."""
    reader, writer = wakeup_pair()
    with reader, writer:
        writer.setblocking(False)
        written = 0
        try:
            while True:
                written += writer.send(b"1")
        except BlockingIOError:
            pass
        assert reader.recv(1) == b"1" * written
        assert writer.send(b"1") == 1


def test_a_version_that_makes_its_pair_in_another_way_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server starts, and the log says what is missing."""
    monkeypatch.delattr(cygrpc, "socket")
    with capture_logs() as lines, unblocked_wakeups():
        assert not hasattr(cygrpc, "socket")
    assert [line["event"] for line in lines] == ["wakeups_one_by_one"]


@pytest.mark.slow
def test_grpc_reads_with_it() -> None:
    """In a process of its own, because gRPC makes its pair once a process."""
    ended = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True, check=True, timeout=60)
    assert int(ended.stdout) > 0
