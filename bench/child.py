"""Measured processes: starts them, waits for their address, reads their CPU time and memory."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
ANNOUNCEMENT = "listening on "
"""Start of the line in which each server prints its address."""

START_SECONDS = 30.0
"""A server that does not listen by then has failed."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Child:
    """A running server process."""

    pid: int
    address: str
    """host:port."""
    log: Path
    """Its stdout and stderr."""

    def cpu_seconds(self) -> float:
        """Returns the processor time that all threads have used so far, in steps of about 10 ms."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND

    def has_ended(self) -> bool:
        """Returns whether it runs no more, although nobody may have waited for it yet."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    def resident_bytes(self) -> int:
        """Returns the memory that it currently holds."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def can_read_usage() -> bool:
    """Returns whether this system reports what other processes use."""
    return Path("/proc/self/statm").exists()


@contextlib.asynccontextmanager
async def running(folder: Path, name: str, arguments: Sequence[str]) -> AsyncIterator[Child]:
    """Runs `python ARGUMENTS`, yields the process once it listens, and ends it afterwards.

    Args:
        folder: Folder of its log.
        name: Name of the log file.
        arguments: Arguments of the Python interpreter.

    Raises:
        RuntimeError: it exited, or did not listen in time.
    """
    log = folder / f"{name}.log"
    # an installed server has its bytecode
    left_out = ("TURNWIRE_", "OPENAI_", "PYTHONDONTWRITEBYTECODE")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(left_out)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, env=environ, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield Child(process.pid, await _address(process, log), log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, 10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        for line in log.read_text().splitlines(keepends=True):
            if line.startswith(ANNOUNCEMENT) and line.endswith("\n"):
                return line.removeprefix(ANNOUNCEMENT).strip().removeprefix("http://")
        if process.poll() is not None:
            break
        await asyncio.sleep(0.001)
    raise RuntimeError(f"the server did not start:\n{log.read_text()}")


def turnwire(
    folder: Path, toml: str = "", options: Sequence[str] = ()
) -> contextlib.AbstractAsyncContextManager[Child]:
    """Runs `turnwire serve` with an empty database.

    Args:
        folder: An empty folder for database, configuration and log.
        toml: Configuration that differs from the defaults.
        options: Further options of the command.
    """
    config = folder / "turnwire.toml"
    config.write_text(toml)
    usual = ["--config", str(config), "--listen", "127.0.0.1:0", "--db", str(folder / "turnwire.db")]
    return running(folder, "turnwire", ["-m", "turnwire", "serve", *usual, *options])


def bare_server(folder: Path) -> contextlib.AbstractAsyncContextManager[Child]:
    """Runs the bare server; see `bench.bare_server`."""
    return running(folder, "bare", ["-m", "bench.bare_server"])


def many_streams(folder: Path) -> contextlib.AbstractAsyncContextManager[Child]:
    """Runs the HTTP server that paces thousands of streams; see `bench.many_streams`."""
    return running(folder, "provider", ["-m", "bench.many_streams"])


def model_provider(folder: Path) -> contextlib.AbstractAsyncContextManager[Child]:
    """Runs the HTTP server that streams deltas; see `bench.model_provider`."""
    return running(folder, "provider", ["-m", "bench.model_provider"])
