"""OpenCode's own clients, with a connection to the adapter that can be cut."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from adapters.tests.conftest import serving
from tests.support.servers.mcp import ENVIRON, ready, stdio
from tests.support.servers.running import connect, running_server

HERE = Path(__file__).parent
RULES = """
[permissions]
"test.add" = "ask"
"""


class Cut:
    """A listener that passes bytes to the adapter, until it cuts."""

    def __init__(self, port: int) -> None:
        """Takes the port behind it."""
        self._behind = port
        self._open: set[asyncio.StreamWriter] = set()
        self.address = ""

    def cut(self) -> None:
        """Resets all connections; new ones are taken again."""
        for writer in list(self._open):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes one connection on."""
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._behind)
        self._open |= {writer, inner_writer}
        with contextlib.suppress(OSError):
            await asyncio.gather(_pass(reader, inner_writer), _pass(inner_reader, writer))
        for one in (writer, inner_writer):
            one.close()
            self._open.discard(one)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a Turnwire server with a tool that asks for permission."""
    folder = tmp_path_factory.mktemp("turnwire")
    async with running_server(folder, stdio(folder) + RULES, ENVIRON) as started, connect(started.address) as client:
        await ready(client)
        yield started.address


@contextlib.asynccontextmanager
async def cut_before(target: str, prefix: str, origins: Sequence[str] = ()) -> AsyncIterator[Cut]:
    """Serves the adapter behind a listener that can cut."""
    changed = {"mounts": {"opencode": prefix}, "allowed_origins": origins}
    async with serving(target, [], **changed) as base:
        cut = Cut(int(base.rpartition(":")[2]))
        listener = await asyncio.start_server(cut.serve, "127.0.0.1", 0)
        try:
            cut.address = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}{prefix}"
            yield cut
        finally:
            listener.close()
            cut.cut()


@pytest.fixture
async def adapter(server: str) -> AsyncIterator[Cut]:
    """The adapter under its prefix."""
    async with cut_before(server, "/opencode") as cut:
        yield cut


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with OpenCode's packages: the one that TURNWIRE_TEST_OPENCODE names, or a new one."""
    given = Path(os.environ["TURNWIRE_TEST_OPENCODE"])
    folder = given if given.is_dir() else tmp_path_factory.mktemp("packages")
    for name in ("package.json", "sdk.mjs", "cut.mjs"):
        shutil.copy(HERE / name, folder)
    return folder


@pytest.fixture(scope="session")
async def installed(packages: Path) -> Path:
    """That folder, with the packages in it; their versions are pinned, and no script of theirs runs."""
    if not (packages / "node_modules").is_dir():
        command = ("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts")
        process = await asyncio.create_subprocess_exec(*command, cwd=packages)
        assert await process.wait() == 0
    return packages


@pytest.fixture(scope="session")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of OpenCode's programs: a home of their own, and no calls to elsewhere."""
    home = tmp_path_factory.mktemp("home")
    (home / "work").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENCODE_", "XDG_"))}
    return {**kept, "HOME": str(home), "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
