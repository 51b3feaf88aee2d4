"""Nodes on one PostgreSQL, each in a folder of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import psycopg

from bench.child import Child, turnwire
from turnwire.domain.shards import SHARDS
from turnwire.storage.postgres.nodes import SHARD

LOOK_SECONDS = 0.05

OWNED = f"""
SELECT count(*) FROM pg_locks
WHERE classid::bigint = {SHARD} AND objsubid = 2
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
GROUP BY pid
"""


def node(folder: Path, url: str, name: str, toml: str = "") -> AbstractAsyncContextManager[Child]:
    """Runs a node.

    Args:
        folder: Gets a folder for the node.
        url: The database.
        name: Name of that folder.
        toml: Configuration besides the sections `storage` and `cluster`.
    """
    place = folder / name
    place.mkdir()
    return turnwire(place, f'{toml}\n[storage]\nurl = "{url}"\n[cluster]\nlisten = "127.0.0.1:0"\n')


@asynccontextmanager
async def nodes(folder: Path, url: str, count: int, toml: str = "") -> AsyncIterator[list[Child]]:
    """Runs so many nodes, and yields them once each has its share of the sessions."""
    async with AsyncExitStack() as stack:
        children = [
            await stack.enter_async_context(node(folder, url, f"node{number}", toml)) for number in range(count)
        ]
        await balanced(url, count)
        yield children


async def balanced(url: str, count: int) -> None:
    """Returns when so many nodes own all shards, and none more than its share."""
    while True:
        owned = await asyncio.to_thread(_owned, url)
        if len(owned) == count and sum(owned) == SHARDS and max(owned) <= -(-SHARDS // count):
            return
        await asyncio.sleep(LOOK_SECONDS)


def _owned(url: str) -> list[int]:
    with psycopg.connect(url, autocommit=True) as db:
        return [number for (number,) in db.execute(OWNED)]
