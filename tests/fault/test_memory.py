"""Memory that large answers took is given back to the system."""

import subprocess
import sys

import pytest

from turnwire.telemetry.memory.process import this_process

PROGRAM = """
import sys
from turnwire.telemetry.memory.freed import FreedMemory
from turnwire.telemetry.memory.process import this_process

memory = this_process()
freed = FreedMemory(memory, look_seconds=1000)
freed.start()  # knows now what there is besides
freed.stop()
texts, kept, before = [], [], memory.held()
for _ in range(1500):
    texts.append(b"x" * 100_000)
    kept.append(b"x" * 4000)  # lies behind it in the heap
del texts
print(memory.held() - before, file=sys.stderr)
freed._look(memory)
print(memory.held() - before, file=sys.stderr)
"""


@pytest.mark.skipif(this_process() is None, reason="another C library")
def test_texts_of_large_answers_leave_no_holes() -> None:
    """The C library alone keeps most of 150 MB that is free between small blocks."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, check=True, capture_output=True, timeout=200)
    left, given_back = map(int, done.stderr.split())
    assert left > 64 << 20
    assert given_back <= 24 << 20
