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


def test_lines_wait_in_order_for_a_reader(pipe: tuple[int, int]) -> None:
    """Nothing is lost while they are few; long lines come whole."""
    ours, theirs = pipe
    output = LogOutput(theirs)
    lines = [f"{number} " + "é" * number + "\n" for number in range(0, 9000, 1000)]
    for line in lines:
        assert output.write(line) == len(line)
    wanted, found = "".join(lines).encode(), b""
    while len(found) < len(wanted):
        found += os.read(ours, 65_536)
    assert found == wanted
    output.close()


def test_what_waits_is_bounded(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The end does not wait long for a reader that never comes."""
    monkeypatch.setattr(log_output, "MAX_WAITING_BYTES", 10_000)
    monkeypatch.setattr(log_output, "CLOSE_SECONDS", 0.01)
    _, theirs = pipe
    output = LogOutput(theirs)
    for _ in range(1000):
        output.write("x" * 100 + "\n")
    assert output._waiting_bytes <= 10_000
    assert output._lost > 800
    output.close()
    assert not output._waiting


def test_nothing_fails_without_a_reader() -> None:
    """The line is lost."""
    ours, theirs = os.pipe()
    os.close(ours)
    output = LogOutput(theirs)
    assert output.write("a line\n") == 7
    output.close()
    os.close(theirs)
