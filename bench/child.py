"""Processes under measurement: starting them, waiting for their address, reading what they use."""

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
"""How each of our servers begins the line that tells its address."""

START_SECONDS = 30.0
"""A server that has not begun to listen by then never will."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Child:
    """A running server process."""

    pid: int
    address: str
    """host:port."""
    log: Path
    """What it wrote, stdout and stderr."""

    def cpu_seconds(self) -> float:
        """Returns the processor time that all threads have used so far, in steps of about 10 ms."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND

    def resident_bytes(self) -> int:
        """Returns the memory that it holds now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def can_read_usage() -> bool:
    """Whether this system tells what other processes use."""
    return Path("/proc/self/statm").exists()


@contextlib.asynccontextmanager
async def running(folder: Path, name: str, arguments: Sequence[str]) -> AsyncIterator[Child]:
    """Runs `python ARGUMENTS`, gives it once it listens, and ends it.

    Args:
        folder: Where its log goes.
        name: Of the log file.
        arguments: For the interpreter that runs this.

    Raises:
        RuntimeError: it ended, or did not listen in time.
    """
    log = folder / f"{name}.log"
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("TURNWIRE_", "OPENAI_"))}
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
    raise RuntimeError(f"no server came up:\n{log.read_text()}")


def turnwire(folder: Path, toml: str = "") -> contextlib.AbstractAsyncContextManager[Child]:
    """Runs `turnwire serve` with an empty database.

    Args:
        folder: For database, configuration and log; a fresh one.
        toml: Configuration beyond the defaults.
    """
    config = folder / "turnwire.toml"
    config.write_text(toml)
    options = ["--config", str(config), "--listen", "127.0.0.1:0", "--db", str(folder / "turnwire.db")]
    return running(folder, "turnwire", ["-m", "turnwire", "serve", *options])


def bare_server(folder: Path) -> contextlib.AbstractAsyncContextManager[Child]:
    """Runs the server that knows only bytes; see `bench.bare_server`."""
    return running(folder, "bare", ["-m", "bench.bare_server"])


def model_provider(folder: Path) -> contextlib.AbstractAsyncContextManager[Child]:
    """Runs the HTTP server that streams deltas; see `bench.model_provider`."""
    return running(folder, "provider", ["-m", "bench.model_provider"])
