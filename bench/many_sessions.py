"""A start and lists of a server whose database has a million sessions."""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg

from bench.child import turnwire
from bench.client import Client, connect
from bench.cluster import node
from opencode.session.session_pb2 import SESSION_ORDER_TITLE, ListSessionsRequest
from turnwire.domain.shards import shard_of

LISTS = {
    "ListSessions, 50 newest": ListSessionsRequest(page_size=50),
    "ListSessions, 50 by title": ListSessionsRequest(page_size=50, order=SESSION_ORDER_TITLE),
}
CALLS = 30

START = datetime(2026, 1, 1, tzinfo=UTC)


async def make_sessions(folder: Path, url: str, sessions: int) -> None:
    """Fills an empty database with copies of a session that a server has made, with ids, times and titles of their
    own.
    """
    async with turnwire(folder, f'[storage]\nurl = "{url}"\n') as server, connect(server.address) as client:
        made = await client.create_session()
    await asyncio.to_thread(_copy, url, made, sessions)


def _copy(url: str, made: str, sessions: int) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        cursor = db.execute("SELECT * FROM sessions WHERE session_id = %s", [made])
        assert cursor.description is not None
        columns = [column.name for column in cursor.description]
        [row] = cursor.fetchall()
        with db.cursor().copy(f"COPY sessions ({', '.join(columns)}) FROM STDIN") as copy:
            for values in _rows(dict(zip(columns, row, strict=True)), sessions):
                copy.write_row(values)
        db.execute("UPDATE tenant_totals SET sessions = (SELECT count(*) FROM sessions)")
        db.execute("SELECT setval('row_numbers', (SELECT max(id) + 1 FROM sessions), false)")
        db.execute("ANALYZE")


def _rows(template: dict[str, object], sessions: int) -> Iterator[list[object]]:
    for number in range(sessions):
        session_id, at = f"ses_{number:032x}", START + timedelta(seconds=number)
        micros = int(at.timestamp() * 1_000_000)
        own = {"id": 1_000_000 + number, "session_id": session_id, "shard": shard_of(session_id)}
        own |= {"updated_at_us": micros, "created_at_us": micros, "title_key": f"conversation {number}"}
        yield list({**template, **own}.values())


async def started(folder: Path, url: str, names: list[str]) -> tuple[list[float], dict[str, list[float]]]:
    """Starts a node for each name, one after the other.

    Returns:
        The seconds from the start of each process to its first answer, and by list the milliseconds of calls.
    """
    starts, lists = [], dict[str, list[float]]()
    for name in names:
        began = time.perf_counter()
        async with node(folder, url, name) as server, connect(server.address) as client:
            await client.create_session()
            starts.append(time.perf_counter() - began)
            for title, request in LISTS.items():
                lists.setdefault(title, []).extend(await _listed(client, request.SerializeToString()))
    return starts, lists


async def _listed(client: Client, request: bytes) -> list[float]:
    found = []
    for _ in range(CALLS):
        began = time.perf_counter()
        await client.list_sessions(request)
        found.append((time.perf_counter() - began) * 1000)
    return found
