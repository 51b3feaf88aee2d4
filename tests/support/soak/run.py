"""Runs the churn against a server process, and looks at what it holds before and after.

    python -m tests.support.soak.run [--seconds N] [--seed N]

Exits 1 when the server holds more than before.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from tests.support.chaos.traffic import CONFIGURATION
from tests.support.clients.web import web_client
from tests.support.servers.mcp import ENVIRON, ROOT, asker, own_port, ready
from tests.support.servers.provider import ProviderServer
from tests.support.servers.running import connect
from tests.support.soak.churn import Churn, Models
from tests.support.soak.held import Held, files_in, grown, leaks

WORKERS = 4
"""Things that are done at the same time, besides one conversation."""

WARM_SECONDS = 10.0
"""Time for which everything is done before the first look: what is made once is made then."""

START_SECONDS = 60.0
REST_SECONDS = 120.0
"""Maximum time until the server comes to rest: stored events are dropped in steps, and files shrink in steps."""

LOOK_SECONDS = 2.0
"""Between two looks at a server that comes to rest."""

ENDED_SECONDS = 2.0
"""Maximum time from the failure of a call to a server's end."""

LOG_LINES = 60
"""Most lines that are shown of the log of a server that has ended."""


class Soaked(msgspec.Struct):
    """Result of a run."""

    before: Held
    after: Held
    done: Counter[str]
    """Number of times that each thing was done between the two."""
    seconds: float
    """Duration of the churn."""
    leaks: list[str]
    """Descriptions of resources that are held and were not before."""


class Process:
    """A server process that says what it holds."""

    def __init__(self, folder: Path, process: asyncio.subprocess.Process) -> None:
        self._folder = folder
        self._process = process
        self._looks = 0
        self.address = ""

    async def listening(self) -> None:
        """Waits until it serves."""
        log = self._folder / "log"
        async with asyncio.timeout(START_SECONDS):
            while not self.address:
                assert self._process.returncode is None, log.read_text()
                for line in log.read_text().splitlines(keepends=True):
                    if line.startswith("listening on ") and line.endswith("\n"):
                        self.address = line.removeprefix("listening on ").strip()
                await asyncio.sleep(0.02)

    async def held(self) -> Held:
        """Returns what it holds now."""
        report = self._folder / "report"
        report.unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR1)
        async with asyncio.timeout(START_SECONDS):
            while not report.exists():
                assert self._process.returncode is None, "the server has ended"
                await asyncio.sleep(0.02)
        held = msgspec.json.decode(report.read_bytes(), type=Held)
        report.unlink()
        database = sum(path.stat().st_size for path in self._folder.glob("turnwire.db*"))
        files = files_in(self._folder)
        return msgspec.structs.replace(held, database_bytes=database, files=files)


async def soak(folder: Path, seconds: float, seed: int, warm_seconds: float = WARM_SECONDS) -> Soaked:
    """Runs the churn for a time.

    Args:
        folder: An empty folder for the server.
        seconds: How long the churn lasts between the two looks; each worker ends what it does.
        seed: Decides what is done, and in which order.
        warm_seconds: How long it lasts before the first one.
    """
    models = Models(seed)
    provider = ProviderServer(models.reply)
    async with (
        provider,
        _process(folder, provider.base_url) as (process, web_url),
        connect(process.address) as client,
        web_client(web_url) as web,
    ):
        await ready(client)
        churn = Churn(client, web, seed)
        await _churned(churn, provider, warm_seconds)
        before = await _at_rest(process, churn, None, 0)
        warmed, began = Counter(churn.done), time.monotonic()
        await _churned(churn, provider, seconds)
        lasted, done = time.monotonic() - began, churn.done - warmed
        after = await _at_rest(process, churn, before, done.total())
    return Soaked(before, after, done, lasted, leaks(before, after, done.total()))


async def _churned(churn: Churn, provider: ProviderServer, seconds: float) -> None:
    ends = time.monotonic() + seconds

    def is_over() -> bool:
        provider.requests.clear()  # nobody looks at them
        return time.monotonic() >= ends

    await churn.run(is_over, WORKERS)


async def _at_rest(process: Process, churn: Churn, before: Held | None, done: int) -> Held:
    """Returns what the server holds when nothing is left to do, or when it did not come to rest in time."""
    await churn.clear()
    held = await process.held()
    ends = time.monotonic() + REST_SECONDS
    while time.monotonic() < ends:
        await asyncio.sleep(LOOK_SECONDS)
        last, held = held, await process.held()
        if before is not None and not leaks(before, held, done):
            break
        if before is None and (last.tasks, last.descriptors, last.files) == (held.tasks, held.descriptors, held.files):
            break
    return held


def _log_of(folder: Path) -> str:
    """Returns the end of what a server has logged."""
    return "\n".join((folder / "log").read_text(errors="replace").splitlines()[-LOG_LINES:])


@contextlib.asynccontextmanager
async def _process(folder: Path, models: str) -> AsyncIterator[tuple[Process, str]]:
    with own_port() as port:
        local = f'[providers.local]\nkind = "openai_chat"\nbase_url = "{models}"\n'
        web = f'[web]\nlisten = "127.0.0.1:{port}"\n'
        (folder / "turnwire.toml").write_text(CONFIGURATION + local + web + asker("web"))
        temporary = folder / "tmp"
        temporary.mkdir()
        environ = {key: value for key, value in ENVIRON.items() if not key.startswith(("TURNWIRE_", "OPENAI_"))}
        environ |= {"TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join([str(ROOT), environ.get("PYTHONPATH", "")])}
        command = ["-X", "faulthandler", "-m", "tests.support.soak.server", str(folder / "report"), "serve"]
        command += ["--config", "turnwire.toml", "--listen", "127.0.0.1:0", "--db", str(folder / "turnwire.db")]
        with (folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, cwd=folder, env=environ, stdout=log, stderr=subprocess.STDOUT
            )
        running = Process(folder, process)
        try:
            await running.listening()
            yield running, f"http://127.0.0.1:{port}"
        except Exception as error:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), ENDED_SECONDS)
            error.add_note(f"the server's exit code: {process.returncode}; the end of its log:\n{_log_of(folder)}")
            raise
        finally:
            if process.returncode is None:
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 20)
            except TimeoutError:
                process.kill()
                await process.wait()


def main() -> int:
    """Runs a soak and prints what was held."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.soak.run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # the model server is left in mid-answer
    with tempfile.TemporaryDirectory(prefix="turnwire-soak-") as folder:
        soaked = asyncio.run(soak(Path(folder), options.seconds, options.seed))
    print(f"seed {options.seed}: {soaked.done.total()} things in {soaked.seconds:.0f} s: {json.dumps(soaked.done)}")
    print(f"before: {soaked.before.line()}\nafter:  {soaked.after.line()}")
    print(f"grown:  {grown(soaked.before, soaked.after)}")
    print("\n".join(soaked.leaks) or "everything was given back")
    return 1 if soaked.leaks else 0


if __name__ == "__main__":
    sys.exit(main())
