"""Log lines that a descriptor does not take at once."""

import fcntl
import os
from collections.abc import Iterator

import pytest

from turnwire.telemetry.logs import output as log_output
from turnwire.telemetry.logs.output import LogOutput


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe of one page."""
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("is_blocking", [True, False])
def test_lines_wait_in_order_for_a_reader(pipe: tuple[int, int], is_blocking: bool) -> None:
    """Nothing is lost while they are few; long lines come whole."""
    ours, theirs = pipe
    os.set_blocking(theirs, is_blocking)
    output = LogOutput(theirs)
    lines = [f"{number} " + "é" * number + "\n" for number in range(0, 9000, 1000)]
    for line in lines:
        output.write(line)
    wanted, found = "".join(lines).encode(), b""
    while len(found) < len(wanted):
        found += os.read(ours, 65_536)
    assert found == wanted
    output.close()


def test_what_waits_is_bounded(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The end does not wait long for a reader that never comes."""
    monkeypatch.setattr(log_output, "MAX_WAITING_LINES", 100)
    monkeypatch.setattr(log_output, "CLOSE_SECONDS", 0.01)
    ours, theirs = pipe
    output = LogOutput(theirs)
    for _ in range(1000):
        output.write("x" * 100)
    output.close()
    output.close()
    lost = output.take_lost()
    assert 800 <= lost <= 900  # up to as many more have been taken to be written
    left = (1000 - lost) * 101
    while left:  # lets the thread end
        left -= len(os.read(ours, 65_536))


def test_nothing_fails_without_a_reader() -> None:
    """The line is lost."""
    ours, theirs = os.pipe()
    os.close(ours)
    output = LogOutput(theirs)
    output.write("a line\n")
    output.close()
    assert output.take_lost() == 1
    os.close(theirs)
