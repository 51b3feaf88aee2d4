"""A real Turnwire server behind the adapters under test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import uvicorn

from tests.support.servers.running import running_server
from turnwire_adapters.registry import HTTP_ADAPTERS
from turnwire_adapters.serve import application
from turnwire_adapters.settings import ServeSettings, Target
from turnwire_adapters.upstream import Upstream

Start = Callable[..., contextlib.AbstractAsyncContextManager[str]]


@pytest.fixture(scope="module")
async def turnwire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a Turnwire server with the default configuration; tests look at their own sessions only."""
    async with running_server(tmp_path_factory.mktemp("turnwire")) as server:
        yield server.address


@contextlib.asynccontextmanager
async def serving(target: str | Target, names: Sequence[str], **changed: object) -> AsyncIterator[str]:
    """Serves adapters on a free port of this machine, in this process; yields the address with its scheme."""
    mounts = {name: HTTP_ADAPTERS[name].prefix for name in names}
    server_behind = Target(target) if isinstance(target, str) else target
    settings = replace(ServeSettings(mounts, "127.0.0.1", 0, server_behind), **changed)  # type: ignore[arg-type]
    config = uvicorn.Config(application(settings, Upstream(settings.target)), port=0, log_config=None, lifespan="on")
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    try:
        while not server.started:
            if running.done():
                running.result()
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


@pytest.fixture
def start() -> Start:
    """The function that starts adapters: `serving`."""
    return serving


@pytest.fixture
def until() -> Callable[..., Any]:
    """Waits until a condition holds, which the test's own time limit bounds."""

    async def wait(condition: Callable[[], Awaitable[bool]]) -> None:
        while not await condition():
            await asyncio.sleep(0.02)

    return wait
